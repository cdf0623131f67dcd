package threads

import (
	"sync"
	"testing"

	"github.com/ferrympi/ferry/pml"
)

// listed returns the bytes of the messages in the free lists.
func (f *freeMessages) listed() (n int) {
	for class := range ownClasses {
		for _, m := range [...]*message{f.takenLists[class], f.returnedLists[class].Load()} {
			for ; m != nil; m = m.nextFree {
				n += cap(m.payload)
			}
		}
	}
	return n
}

// TestFreeMessages_StreamInOneDirection_ReturnToTheSender checks that the receiver keeps none of them.
func TestFreeMessages_StreamInOneDirection_ReturnToTheSender(t *testing.T) {
	team, comms := openTeam(t, 2)
	buf := pml.Buffer{Bytes: make([]byte, 1000)}
	for range 10 {
		for range 3 {
			if err := comms[0].Send(t.Context(), buf, 1, 1, p2p, pml.Standard); err != nil {
				t.Fatal(err)
			}
		}
		for range 3 {
			if _, err := comms[1].Recv(t.Context(), buf, 0, 1, p2p); err != nil {
				t.Fatal(err)
			}
		}
	}
	sender, receiver := &team.Rank(0).freeMessages, &team.Rank(1).freeMessages
	if want := 3 << 10; sender.ownedBytes != want || sender.listed() != want || receiver.ownedBytes != 0 || receiver.listed() != 0 {
		t.Errorf("bytes owned, in lists: sender %d, %d; receiver %d, %d; want the 3 messages that are under way at a time",
			sender.ownedBytes, sender.listed(), receiver.ownedBytes, receiver.listed())
	}
}

// TestFreeMessages_ManyUnderWay_AreLimited checks that messages beyond the limit belong to no rank.
func TestFreeMessages_ManyUnderWay_AreLimited(t *testing.T) {
	r := &Rank{}
	var all []*message
	owned := 0
	for range 2 * ownedMax / 1024 {
		m := r.newMessage(1000)
		if m.homeRank != nil {
			owned += cap(m.payload)
		}
		all = append(all, m)
	}
	for _, m := range all {
		m.free()
	}
	if owned != ownedMax || r.freeMessages.listed() != ownedMax {
		t.Errorf("%d bytes owned, %d in lists, want %d", owned, r.freeMessages.listed(), ownedMax)
	}
	if m := r.newMessage(1025); m.homeRank != nil {
		t.Error("a message of more than 1 KiB belongs to a rank")
	}
}

// TestFreeMessages_ManyGoroutines_ShareNoMessage lets goroutines of the sender take messages while receivers return
// them.
func TestFreeMessages_ManyGoroutines_ShareNoMessage(t *testing.T) {
	r := &Rank{}
	var senders, receivers sync.WaitGroup
	sent := make(chan *message, 16)
	for g := range 3 {
		senders.Go(func() {
			for i := range 3000 {
				m := r.newMessage(64)
				m.payload[0], m.payload[63] = byte(g), byte(i)
				m.matchEntry.Source, m.matchEntry.Tag = g, i&0xff
				sent <- m
			}
		})
		receivers.Go(func() {
			for m := range sent {
				if int(m.payload[0]) != m.matchEntry.Source || int(m.payload[63]) != m.matchEntry.Tag {
					t.Error("two goroutines use a message at the same time")
				}
				m.free()
			}
		})
	}
	senders.Wait()
	close(sent)
	receivers.Wait()
	if r.freeMessages.listed() != r.freeMessages.ownedBytes {
		t.Errorf("%d bytes in lists, %d owned", r.freeMessages.listed(), r.freeMessages.ownedBytes)
	}
}
