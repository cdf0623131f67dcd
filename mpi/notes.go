package mpi

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/ferrympi/ferry/agreement"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

// Notes carry the messages of agreements between processes (bootstrap.Noter). Ranks of one process exchange
// theirs directly.

// noteEnd is the receiver or sender of a note, as a rank of the communicator and the endpoint in its process.
type noteEnd struct {
	rank     uint32
	endpoint uint16
}

// noteHeader is the beginning of a note. A message of package agreement follows.
type noteHeader struct {
	comm     cid.Extended
	to, from noteEnd
}

const noteHeaderSize = 16 + 2*(4+2)

func (h noteHeader) encode(m agreement.Message) []byte {
	id := h.comm.Bytes()
	b := append(make([]byte, 0, 2*noteHeaderSize), id[:]...)
	for _, end := range []noteEnd{h.to, h.from} {
		b = binary.BigEndian.AppendUint32(b, end.rank)
		b = binary.BigEndian.AppendUint16(b, end.endpoint)
	}
	return append(b, agreement.Encode(m)...)
}

var errShortNote = errors.New("note is shorter than its header")

func decodeNote(body string) (h noteHeader, message []byte, err error) {
	if len(body) < noteHeaderSize {
		return h, nil, errShortNote
	}
	b := []byte(body)
	h.comm = cid.FromBytes([16]byte(b))
	for i, end := range []*noteEnd{&h.to, &h.from} {
		at := b[16+6*i:]
		end.rank, end.endpoint = binary.BigEndian.Uint32(at), binary.BigEndian.Uint16(at[4:])
	}
	return h, b[noteHeaderSize:], nil
}

// outgoingNote is a note to send.
type outgoingNote struct {
	// The sender; nil in an answer for a communicator that is not open.
	sender *agreements
	to     framework.Incarnation
	body   []byte
}

// sendNotes sends notes, and processes those to ranks of this process. No lock is held.
func (e *process) sendNotes(notes []outgoingNote) {
	for len(notes) > 0 {
		n := notes[0]
		notes = notes[1:]
		e := e
		if n.sender != nil {
			e = n.sender.c.session.process
		}
		if n.to == e.Env().Self {
			notes = append(notes, e.receiveNote(n.to, string(n.body))...)
		} else if err := e.SendNote(n.to, n.body); err != nil && n.sender != nil {
			n.sender.fail(err)
		}
	}
}

// NoteReceived implements assembly.Watcher.
func (e *process) NoteReceived(from framework.Incarnation, body string) {
	if e.isOpened.Load() { // Before, no communicator exists here.
		e.sendNotes(e.receiveNote(from, body))
	}
}

// receiveNote processes a note, and returns the notes to send because of it. A note that no correct process sends is
// dropped and counted.
func (e *process) receiveNote(from framework.Incarnation, body string) []outgoingNote {
	h, message, err := decodeNote(body)
	if err != nil {
		e.notesDropped.Add(1)
		return nil
	}
	key := cid.EndpointID{Extended: h.comm, Endpoint: h.to.endpoint}
	e.mu.Lock()
	c := e.openComms[key]
	isAbsent := c == nil && e.isAbsent(key)
	if c == nil && !isAbsent {
		lost := e.earlyNotes.add(earlyNote{from, h, message})
		e.notesDropped.Add(uint64(lost))
	}
	e.mu.Unlock()
	switch {
	case isAbsent || c != nil && c.isClosed():
		return e.answerClosed(from, h, message)
	case c != nil:
		return c.receiveNote(from, h, message)
	}
	return nil
}

// receiveNote is process.receiveNote for one communicator.
func (c *Comm) receiveNote(from framework.Incarnation, h noteHeader, message []byte) []outgoingNote {
	e := c.session.process
	if int64(h.to.rank) != int64(c.rank) || int64(h.from.rank) >= int64(c.size) ||
		!c.isMember(int(h.from.rank), pml.Member{Incarnation: from, Endpoint: h.from.endpoint}) {
		e.notesDropped.Add(1)
		return nil
	}
	msg, err := agreement.Decode(message, c.size)
	if err != nil {
		e.notesDropped.Add(1)
		return nil
	}
	return c.agreement().receive(int(h.from.rank), msg)
}

// isMember reports whether m has that rank. If that is a stream, m has its process.
func (c *Comm) isMember(rank int, m pml.Member) bool {
	e, is := c.session.process, c.spec.Members.Member(rank)
	return is == m || is.Endpoint == m.Endpoint && e.IsStream(is.Incarnation) && e.ProcessOf(is.Incarnation).Nonce == m.Incarnation.Nonce
}

// answerClosed answers a note for a communicator that this process or rank has closed, or will not create.
func (e *process) answerClosed(to framework.Incarnation, h noteHeader, message []byte) []outgoingNote {
	msg, err := agreement.Decode(message, mostNoteRanks)
	if err != nil {
		e.notesDropped.Add(1)
		return nil
	}
	if msg.Kind == agreement.Decided || msg.Kind == agreement.Closed { // Answers are not answered.
		return nil
	}
	h.to, h.from = h.from, h.to
	answer := agreement.Message{Kind: agreement.Closed, Instance: msg.Instance}
	return []outgoingNote{{to: to, body: h.encode(answer)}}
}

// mostNoteRanks limits the ranks in a note for a communicator of unknown size.
const mostNoteRanks = 1 << 20

// earlyNote is a note that has arrived before its communicator exists here.
type earlyNote struct {
	from    framework.Incarnation
	header  noteHeader
	message []byte
}

// earlyNotes is the early-arrival queue of notes, the oldest first. If it is full, the oldest one is lost. Its sender
// repeats it. Guarded by process.mu.
type earlyNotes struct {
	notes        []earlyNote
	messageBytes int // Of all messages.
}

// Limits of an early-arrival queue.
const (
	mostEarlyNotes     = 4096
	mostEarlyNoteBytes = 4 << 20
)

// add appends a note in place of an earlier one from the same rank. It returns the number of notes that are lost.
func (l *earlyNotes) add(n earlyNote) (lost int) {
	l.remove(func(x earlyNote) bool { return x.header == n.header && x.from == n.from })
	l.notes = append(l.notes, n)
	l.messageBytes += len(n.message)
	for len(l.notes) > mostEarlyNotes || l.messageBytes > mostEarlyNoteBytes && len(l.notes) > 1 {
		l.messageBytes -= len(l.notes[0].message)
		l.notes = l.notes[1:]
		lost++
	}
	return lost
}

// take removes and returns the notes for a handle.
func (l *earlyNotes) take(key cid.EndpointID) []earlyNote {
	if len(l.notes) == 0 {
		return nil
	}
	return l.remove(func(n earlyNote) bool {
		return n.header.comm == key.Extended && n.header.to.endpoint == key.Endpoint
	})
}

func (l *earlyNotes) remove(match func(earlyNote) bool) (removed []earlyNote) {
	l.notes = slices.DeleteFunc(l.notes, func(n earlyNote) bool {
		isMatch := match(n)
		if isMatch {
			removed = append(removed, n)
			l.messageBytes -= len(n.message)
		}
		return isMatch
	})
	return removed
}
