package shm

import (
	"errors"
	"slices"
	"testing"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/shmlayout"
)

// highestRank is the highest rank that a job assigns.
const highestRank = 131_071

// sender is a process that has requested a ring in the owner's inbox.
type sender struct {
	*testProc
	owner    *module
	endpoint *endpoint
}

// sendFirstFrame sends a frame and returns when the owner has received it.
func (s *sender) sendFirstFrame(t *testing.T, w *pair) {
	frames := w.procs[0].frames
	w.send(t, s.endpoint, make([]byte, 100))
	w.poll(t, func() bool { return w.procs[0].frames > frames })
}

// kill ends the process without a change of the owner's inbox, and reports the death to the owner.
func (s *sender) kill(t *testing.T) {
	m := s.module.(*module)
	m.releaseBell()
	if s.endpoint.cells != nil {
		s.endpoint.cells.Close()
	}
	s.endpoint.remote.Close()
	s.engine.Close()
	if err := errors.Join(m.mapping.Close(), m.inboxFile.segment.Close()); err != nil {
		t.Error(err)
	}
	s.owner.Forget(s.incarnation)
}

func (s *sender) close(t *testing.T) {
	if err := s.module.Close(); err != nil {
		t.Error(err)
	}
	s.engine.Close()
}

// senderEnds are the ways in which a sender ends.
var senderEnds = []struct {
	name string
	end  func(t *testing.T, w *pair, s *sender)
}{
	{"closes its session", func(t *testing.T, w *pair, s *sender) {
		s.sendFirstFrame(t, w)
		s.close(t)
	}},
	{"closes its session before its request is served", func(t *testing.T, _ *pair, s *sender) { s.close(t) }},
	{"is killed", func(t *testing.T, w *pair, s *sender) {
		s.sendFirstFrame(t, w)
		s.kill(t)
	}},
	{"is killed before its request is served", func(t *testing.T, _ *pair, s *sender) { s.kill(t) }},
	{"is killed when its request has been refused", func(t *testing.T, _ *pair, s *sender) {
		s.endpoint.slot.Refuse("test")
		s.kill(t)
	}},
	{"is killed when its path has been ended", func(t *testing.T, w *pair, s *sender) {
		s.sendFirstFrame(t, w)
		s.owner.inboundPaths[s.incarnation].failPath(errors.New("test"))
		s.kill(t)
	}},
	{"is killed when its last frame is malformed", func(t *testing.T, w *pair, s *sender) {
		s.sendFirstFrame(t, w)
		w.send(t, s.endpoint, make([]byte, 100))
		w.procs[0].frameErr = errors.New("test")
		s.kill(t)
		w.procs[0].frameErr = nil
	}},
}

// A job that changes 1,000 times assigns ever higher ranks. The inbox has slots for 8 processes at
// a time, and the ring sizes follow the number of processes.
func TestInbox_ThousandSuccessiveSenders_SlotsAndMemoryAreUsedAgain(t *testing.T) {
	dir, namespace := t.TempDir(), t.Name()
	open := func(rank int) *testProc {
		id := bootstrap.Identity{Proc: framework.Proc{Namespace: namespace, Rank: uint32(rank)}, FirstRank: rank, Size: 1, LocalSize: 1}
		return openProc(t, Component(), id, func(p *params) { p.Dir, p.MaxPeers, p.RingSize = dir, 8, 0 })
	}
	w := &pair{namespace: namespace, procs: [2]*testProc{open(0)}}
	defer w.close(t)
	owner := w.procs[0].module.(*module)
	var sizes []int64
	for i := range 1000 {
		how := senderEnds[i%len(senderEnds)]
		w.procs[0].engine.SetNodeProcs(2 + i%100)
		s := &sender{testProc: open(highestRank - i), owner: owner}
		w.procs[1] = s.testProc
		ep, err := s.module.Connect(framework.Peer{
			Incarnation: w.procs[0].incarnation, Proc: framework.Proc{Namespace: namespace}, Blob: owner.Blob(),
		})
		if err != nil {
			t.Fatalf("sender %d: %v", i, err)
		}
		s.endpoint = ep.(*endpoint)
		how.end(t, w, s)
		w.procs[1] = nil
		owner.Poll()
		if len(owner.inboundPaths)+len(owner.polledPaths) > 0 {
			t.Fatalf("sender %d, which %s: the owner keeps %d paths", i, how.name, len(owner.polledPaths))
		}
		for k := range owner.inbox.Slots() {
			if state := owner.inbox.Slot(k).State(); state != shmlayout.Free {
				t.Fatalf("sender %d, which %s: slot %d has state %d", i, how.name, k, state)
			}
		}
		for size, free := range owner.inboxFile.freeOffsets {
			if slices.Sort(free); len(slices.Compact(slices.Clone(free))) < len(free) {
				t.Fatalf("sender %d, which %s: memory of %d bytes is free twice: %v", i, how.name, size, free)
			}
		}
		sizes = append(sizes, owner.inboxFile.size)
	}
	if first, last := sizes[299], sizes[999]; first != last {
		t.Errorf("the segment has %d bytes after 300 senders and %d after 1,000", first, last)
	}
}
