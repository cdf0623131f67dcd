package mpi

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/ferrympi/ferry/agreement"
	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
)

func note(comm cid.Extended, from uint32) earlyNote {
	h := noteHeader{comm: comm, to: noteEnd{1, 2}, from: noteEnd{from, 3}}
	return earlyNote{framework.Incarnation{Nonce: 7}, h, agreement.Encode(agreement.Message{Kind: agreement.Decided})}
}

func TestEarlyNotes_CommunicatorIsCreated_TakesItsNotes(t *testing.T) {
	first, second := cid.Extended{Base: 1}, cid.Extended{Base: 2}
	var l earlyNotes
	for _, n := range []earlyNote{note(first, 1), note(second, 1), note(first, 3), note(first, 1)} { // The last one is repeated.
		l.add(n)
	}
	var got []string
	for _, n := range l.take(cid.EndpointID{Extended: first, Endpoint: 2}) {
		got = append(got, fmt.Sprint(n.header.from.rank))
	}
	if fmt.Sprint(got) != "[3 1]" || len(l.notes) != 1 || l.messageBytes != len(l.notes[0].message) {
		t.Errorf("the notes of ranks %v are taken, %d are left with %d bytes", got, len(l.notes), l.messageBytes)
	}
	if other := l.take(cid.EndpointID{Extended: second}); other != nil {
		t.Errorf("another endpoint takes %d notes", len(other))
	}
}

func TestEarlyNotes_QueueIsFull_DropsTheOldest(t *testing.T) {
	var l earlyNotes
	lost := 0
	for i := range mostEarlyNotes + 5 {
		lost += l.add(note(cid.Extended{Base: uint64(i + 1)}, 1))
	}
	if len(l.notes) != mostEarlyNotes || l.notes[0].header.comm.Base != 6 || lost != 5 {
		t.Errorf("%d notes are left, the oldest of communicator %v, and %d are lost", len(l.notes), l.notes[0].header.comm, lost)
	}
	large := note(cid.Extended{Base: 1}, 1)
	large.message = make([]byte, mostEarlyNoteBytes)
	if lost := l.add(large); len(l.notes) != 1 || l.messageBytes != mostEarlyNoteBytes || lost != mostEarlyNotes {
		t.Errorf("%d notes are left with %d bytes, %d are lost", len(l.notes), l.messageBytes, lost)
	}
}

// FuzzNote decodes arbitrary notes. The encoding of a decoded header is the same as before.
func FuzzNote(f *testing.F) {
	n := note(cid.Extended{Base: 1, Sub: 2}, 3)
	f.Add(string(n.header.encode(agreement.Message{Kind: agreement.Ask, Ballot: 1})))
	f.Add(string(n.header.encode(agreement.Message{Kind: agreement.Closed, Instance: 4})))
	f.Add("")
	f.Fuzz(func(t *testing.T, body string) {
		h, message, err := decodeNote(body)
		if err != nil {
			return
		}
		if msg, err := agreement.Decode(message, mostNoteRanks); err == nil && !bytes.HasPrefix(h.encode(msg), []byte(body[:noteHeaderSize])) {
			t.Errorf("header %+v is encoded in another way", h)
		}
	})
}

// A note has room for the failed ranks of a large job, whichever they are.
func TestNote_EverySecondOfManyRanksHasFailed_FitsIntoANote(t *testing.T) {
	const size, self = 200_000, 4
	var failed []int
	for rank := 1; rank < size; rank += 2 {
		failed = append(failed, rank)
	}
	m := agreement.New(self, size)
	m.Failed(failed...)
	if err := m.Start(agreement.Call{Operation: agreement.Shrink, FailedRanks: failed, AckedRanks: failed}, nil); err != nil {
		t.Fatal(err)
	}
	proposal := agreement.Message{Kind: agreement.Propose, Ballot: 1, Outcome: &agreement.Outcome{Operation: agreement.Shrink, FailedRanks: failed, AckedRanks: failed, ID: cid.Extended{Base: 7}}}
	m.Receive(0, proposal)
	m.Failed(0) // The next coordinator gets the contribution with the outcome.
	messages := []agreement.Message{proposal}
	for _, e := range m.Take() {
		messages = append(messages, e.Message)
	}
	for _, want := range messages {
		b := noteHeader{}.encode(want)
		if len(b) > bootstrap.MaxPayload {
			t.Errorf("%v of %d bytes", want.Kind, len(b))
		}
		_, body, err := decodeNote(string(b))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := agreement.Decode(body, size); err != nil || !bytes.Equal(agreement.Encode(got), body) {
			t.Errorf("%v is decoded as %v, %v", want.Kind, got.Kind, err)
		}
	}
	if last := messages[len(messages)-1]; last.Kind != agreement.Contribute || last.Outcome == nil || len(last.Outcome.FailedRanks) != size/2 || len(messages) != 4 {
		t.Errorf("%d messages, the last one of %v", len(messages), last.Kind)
	}
}
