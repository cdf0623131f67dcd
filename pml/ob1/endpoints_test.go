package ob1

import (
	"testing"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/pml"
)

// A process sends for its own ranks only. Frames for an endpoint that has not joined are early
// arrivals.
func TestFrame_ForgedEndpointOrRank_PathEndsOrFrameIsKept(t *testing.T) {
	const local = cid.Local(1<<20 | 5)
	elsewhere := cid.Extended{Base: 77}
	for name, c := range map[string]struct {
		frame []byte
		// ends is set if the frame is an error, which ends the path.
		ends bool
		kept int
	}{
		"message from its endpoint":         {frame: extended(withEndpoints, 1, 1, 3, local, 0)},
		"message of another endpoint":       {frame: extended(withEndpoints, 1, 0, 3, local, 0), ends: true},
		"message of an endpoint that isn't": {frame: extended(withEndpoints, 1, 9, 3, local, 0), ends: true},
		"message of the receiver's process": {frame: extended(withEndpoints, 1, 0, 0, local, 0), ends: true},
		"message of no rank":                {frame: extended(withEndpoints, 1, 1, 4, local, 0), ends: true},
		"message to an endpoint to come":    {frame: extended(withEndpoints, 9, 1, 3, local, 0), kept: 1},
		"message to a communicator to come": {frame: extended(elsewhere, 1, 1, 3, local, 0), kept: 1},
		"endpoint of a whole process":       {frame: extended(cid.Extended{Base: 2}, 0, 1, 1, local, 0), ends: true},

		"id of its endpoint":              {frame: aboutIDs(frameCID, 0, withEndpoints, 0, 1, 3, local)},
		"id of another endpoint":          {frame: aboutIDs(frameCID, 0, withEndpoints, 0, 0, 3, local), ends: true},
		"id for an endpoint that isn't":   {frame: aboutIDs(frameCID, 0, withEndpoints, 9, 1, 3, local)},
		"inquiry for an endpoint to come": {frame: aboutIDs(frameCID, cidInquiry, withEndpoints, 9, 1, 3, local), kept: 1},

		"close of its endpoint":            {frame: aboutIDs(frameClosed, 0, withEndpoints, 0, 1, 3, local)},
		"close of another endpoint":        {frame: aboutIDs(frameClosed, 0, withEndpoints, 0, 0, 3, local), ends: true},
		"close for an endpoint to come":    {frame: aboutIDs(frameClosed, 0, withEndpoints, 9, 1, 3, local), kept: 1},
		"answer of its endpoint":           {frame: aboutIDs(frameClosed, closedReply, withEndpoints, 0, 1, 77, 0)},
		"answer of an endpoint that isn't": {frame: aboutIDs(frameClosed, closedReply, withEndpoints, 0, 9, 3, 0), ends: true},
		"answer for an endpoint to come":   {frame: aboutIDs(frameClosed, closedReply, withEndpoints, 9, 1, 3, 0)},
	} {
		v := newVictim(t)
		err := v.feed(c.frame)
		if (err != nil) != c.ends {
			t.Errorf("%s: %v", name, err)
		}
		if kept := v.m.inspect().EarlyArrivals; kept != c.kept {
			t.Errorf("%s: %d frames are kept, want %d", name, kept, c.kept)
		}
		v.check(t)
		v.close(t)
	}
}

// Frames between whole processes are those of a job without endpoints.
func TestFrame_EndpointsOfWholeProcesses_AreZero(t *testing.T) {
	v := newVictim(t)
	defer v.close(t)
	v.engine.Lock()
	defer v.engine.Unlock()
	whole, ranks := v.comms[1].peer(1).memberFrame(frameCID, 0), v.comms[3].peer(2).memberFrame(frameCID, 0)
	if le.Uint16(whole.bytes[2:]) != 0 || le.Uint16(whole.bytes[12:]) != 0 {
		t.Errorf("% x", whole.bytes[:cidSize])
	}
	if m := parseMemberFrame(ranks.bytes[:]); m.to != (cid.EndpointID{Extended: withEndpoints}) || m.from != 1 {
		t.Errorf("frame to %v from endpoint %d", m.to, m.from)
	}
}

// Each rank of a process would inquire all ranks of the others.
func TestSourceError_AnySourceAmongSeveralRanksPerProcess_AsksNoMember(t *testing.T) {
	v := newVictim(t)
	defer v.close(t)
	v.engine.Lock()
	defer v.engine.Unlock()
	v.m.failures++
	whole, ranks := v.comms[1], v.comms[3]
	for _, c := range []*comm{whole, ranks} {
		if err := c.SourceError(pml.AnySource, pml.PointToPoint); err != nil {
			t.Fatal(err)
		}
	}
	if whole.inquired == 0 || ranks.inquired != 0 {
		t.Errorf("members were inquired: %t among whole processes, %t among ranks", whole.inquired != 0, ranks.inquired != 0)
	}
}
