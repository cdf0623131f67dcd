package server

import (
	"slices"

	"github.com/ferrympi/ferry/bootstrap/local/internal/wire"
)

// join is one instance of a fence or construct, from its first member's call
// to its last's. Guarded by Server.mu.
type join struct {
	key      string
	kind     wire.Kind
	group    wire.Runs
	members  []request // by position in the group; c is nil: not here
	payloads [][]byte
	here     int
}

// join enters r into an instance, and completes that when r is its last.
func (s *Server) join(r request, kind wire.Kind, b wire.JoinBody) error {
	j, err := s.enterJoin(r, kind, b)
	if j != nil {
		s.complete(j)
	}
	return err
}

// enterJoin returns the instance when r completed it; it is then out of the
// table and nobody else's.
func (s *Server) enterJoin(r request, kind wire.Kind, b wire.JoinBody) (*join, error) {
	// Equal for calls that belong together. The group is a CBOR value and so delimits
	// itself: no two pairs are equal.
	key := string([]byte{byte(kind)}) + string(b.Group) + b.Tag
	s.mu.Lock()
	defer s.mu.Unlock()
	j, at := s.findJoin(key, r.c.rank)
	if j == nil {
		group, err := wire.Decode[wire.Runs](b.Group)
		if err != nil {
			return nil, err
		}
		if err := group.Check(s.opt.Namespace, s.opt.Size); err != nil {
			r.fail(wire.FailureBody{Code: wire.CodeGroup, Text: err.Error()})
			return nil, nil
		}
		if at = group.Index(r.c.rank); at < 0 {
			r.fail(wire.FailureBody{Code: wire.CodeGroup, Text: "the caller is no member"})
			return nil, nil
		}
		n := len(group.Ranks())
		j = &join{key: key, kind: kind, group: group, members: make([]request, n), payloads: make([][]byte, n)}
		if failed := s.endedLocked(j); len(failed) > 0 {
			r.fail(wire.FailureBody{Code: wire.CodeMissing, Failed: failed})
			return nil, nil
		}
		s.joins[key] = append(s.joins[key], j)
	}
	j.members[at], j.payloads[at] = r, b.Payload
	j.here++
	r.c.pending[r.id] = func(expired bool) wire.FailureBody { return s.leaveJoin(j, at, expired) }
	if j.here < len(j.members) {
		return nil, nil
	}
	s.removeJoin(j)
	for _, m := range j.members {
		delete(m.c.pending, m.id)
	}
	return j, nil
}

// findJoin returns the oldest instance of key in which rank is not yet, and
// rank's position there. A process that is in one already means the next.
func (s *Server) findJoin(key string, rank uint32) (*join, int) {
	for _, j := range s.joins[key] {
		at := j.group.Index(rank)
		if at >= 0 && j.members[at].c == nil {
			return j, at
		}
	}
	return nil, -1
}

func (s *Server) removeJoin(j *join) {
	// A copy: a caller may be ranging over the old one.
	js := slices.DeleteFunc(slices.Clone(s.joins[j.key]), func(x *join) bool { return x == j })
	if s.joins[j.key] = js; len(js) == 0 {
		delete(s.joins, j.key)
	}
}

// complete answers every member of j. What all get alike is encoded once.
func (s *Server) complete(j *join) {
	var body any = wire.Empty{}
	if j.kind == wire.Construct {
		s.mu.Lock()
		s.contexts++
		id := s.contexts
		s.mu.Unlock()
		body = wire.ConstructedBody{ContextID: id, Payloads: j.payloads}
	}
	kind, answer := wire.Reply, wire.EncodeBody(body)
	if _, err := wire.Header(kind, 0, len(answer)); err != nil {
		kind, answer = wire.Failure, wire.EncodeBody(wire.FailureBody{Code: wire.CodeLimit,
			Text: "the payloads of all members together do not fit into one frame: " + err.Error()})
	}
	for _, m := range j.members {
		m.answer(kind, answer)
	}
}

// failJoinLocked ends j: f answers all who wait in it.
func (s *Server) failJoinLocked(j *join, f wire.FailureBody) {
	s.removeJoin(j)
	for _, m := range j.members {
		if m.c != nil {
			m.fail(f)
		}
	}
}

// absentLocked returns the ranks that j still waits for.
func (j *join) absentLocked() []uint32 {
	var out []uint32
	for i, r := range j.group.Ranks() {
		if j.members[i].c == nil {
			out = append(out, r)
		}
	}
	return out
}

// endedLocked returns the members of j that will never come.
func (s *Server) endedLocked(j *join) []uint32 {
	return slices.DeleteFunc(j.group.Ranks(), func(r uint32) bool { return !s.procs[r].ended })
}

// leaveJoin takes a member out; when its deadline has passed, the instance
// ends for all, and everyone learns the same names.
func (s *Server) leaveJoin(j *join, at int, expired bool) wire.FailureBody {
	missing := j.absentLocked()
	j.members[at], j.payloads[at] = request{}, nil
	j.here--
	if expired {
		f := wire.FailureBody{Code: wire.CodeMissing, Missing: missing}
		s.failJoinLocked(j, f)
		return f
	}
	if j.here == 0 {
		s.removeJoin(j)
	}
	return wire.FailureBody{Code: wire.CodeWithdrawn, Missing: missing}
}
