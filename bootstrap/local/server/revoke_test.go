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
	queue := &conn{server: s, isWriting: true, bytesUnwritten: maxUnwritten / 2} // Keeps its frames.
	s.procs[0].conn = queue
	s.procs[2].hasEnded = true
	for range 2 {
		s.sendCommEvent(s.procs[1], wire.ReportCommEventBody{Kind: uint8(bootstrap.CommRevoked), Comm: [16]byte{1}, Ranks: []uint32{3, 0, 2, 0, 7, 1}})
	}
	s.sendCommEvent(s.procs[2], wire.ReportCommEventBody{Kind: uint8(bootstrap.CommRevoked), Comm: [16]byte{2}, Ranks: []uint32{0}})
	s.sendCommEvent(s.procs[2], wire.ReportCommEventBody{Kind: uint8(bootstrap.CommBroken), Comm: [16]byte{2}, Ranks: []uint32{0}})
	s.sendCommEvent(s.procs[1], wire.ReportCommEventBody{Kind: uint8(bootstrap.CommBroken), Comm: [16]byte{1}, Ranks: []uint32{0, 1}})
	if len(queue.queue) != 2 {
		t.Errorf("%d frames, want a revocation and the event Broken", len(queue.queue))
	}
	if one := s.eventLog.revoked.Kept(); len(one) != 1 || len(one[0].Absent) != 1 || one[0].Absent[0] != 3 {
		t.Errorf("kept: %+v, want one, of which rank 3 is due", one)
	}
	s.procs[0].conn = nil
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
