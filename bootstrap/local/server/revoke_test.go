package server

import (
	"testing"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
)

func TestRevoke_MemberDoesNotReadOrIsNamedTwice_IsSentOnce(t *testing.T) {
	s, err := New(Options{Size: 4})
	if err != nil {
		t.Fatal(err)
	}
	queue := &conn{s: s, writing: true, queued: maxQueue / 2} // Keeps its frames.
	s.procs[0].conn = queue
	s.procs[2].ended = true
	for range 2 {
		s.commEvent(s.procs[1], wire.BrokeBody{Kind: uint8(bootstrap.Revoked), Comm: [16]byte{1}, Ranks: []uint32{3, 0, 2, 0, 7, 1}})
	}
	s.commEvent(s.procs[2], wire.BrokeBody{Kind: uint8(bootstrap.Revoked), Comm: [16]byte{2}, Ranks: []uint32{0}})
	s.commEvent(s.procs[2], wire.BrokeBody{Kind: uint8(bootstrap.Broken), Comm: [16]byte{2}, Ranks: []uint32{0}})
	s.commEvent(s.procs[1], wire.BrokeBody{Kind: uint8(bootstrap.Broken), Comm: [16]byte{1}, Ranks: []uint32{0, 1}})
	if len(queue.queue) != 2 {
		t.Errorf("%d frames, want a revocation and the event Broken", len(queue.queue))
	}
	if one := s.revoked.Kept(); len(one) != 1 || len(one[0].Absent) != 1 || one[0].Absent[0] != 3 {
		t.Errorf("kept: %+v, want one, of which rank 3 is due", one)
	}
	s.procs[0].conn = nil
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
