package server

import (
	"fmt"

	"github.com/ferrympi/ferry/bootstrap/internal/join"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
)

// maxPendingRequests limits the unanswered requests of one client.
const maxPendingRequests = 1 << 16

// handle serves one request. After an error, which is a violation of the protocol, the connection
// is closed.
func (c *conn) handle(m wire.Message) error {
	r := request{conn: c, id: m.ID}
	switch m.Kind { // Messages without a reply.
	case wire.Put:
		return handleBody(m, func(b wire.ValuedBody) { c.server.put(c.proc, b) })
	case wire.Incarnation:
		return handleBody(m, func(b wire.IncarnationBody) { c.server.setIncarnation(c.proc, b.Nonce) })
	case wire.Disconnect:
		return handleBody(m, func(b wire.DisconnectBody) { c.server.sendDisconnect(c.proc, b) })
	case wire.ReportCommEvent:
		return handleBody(m, func(b wire.ReportCommEventBody) { c.server.sendCommEvent(c.proc, b) })
	case wire.Note:
		return handleBody(m, func(b wire.NoteBody) { c.server.sendNote(c.proc, b) })
	case wire.AliveAnswer:
		return handleBody(m, func(wire.Empty) {})
	case wire.Cancel:
		return handleBody(m, func(b wire.CancelBody) { c.server.cancel(r, b.Expired) })
	}
	if err := c.checkRequest(m.ID); err != nil {
		return err
	}
	switch m.Kind {
	case wire.Get:
		return handleBody(m, func(b wire.GetBody) { c.server.get(r, b) })
	case wire.Fence, wire.Construct:
		b, err := wire.Decode[wire.JoinBody](m.Body)
		if err != nil {
			return err
		}
		return c.server.join(r, m.Kind, b)
	case wire.Publish:
		return handleBody(m, func(b wire.ValuedBody) { c.server.publish(r, b) })
	case wire.Unpublish:
		return handleBody(m, func(b wire.NameBody) { c.server.unpublish(r, b) })
	case wire.Lookup:
		return handleBody(m, func(b wire.LookupBody) { c.server.lookup(r, b) })
	case wire.Psets:
		return handleBody(m, func(wire.Empty) { c.server.psets(r) })
	case wire.Pset:
		return handleBody(m, func(b wire.NameBody) { c.server.pset(r, b) })
	case wire.Change:
		return c.server.change(r, m)
	case wire.Report:
		return handleBody(m, func(b wire.ValuedBody) { c.server.report(r, b) })
	}
	return fmt.Errorf("message kind %d is not a request", m.Kind)
}

// handleBody decodes the body of m and passes it to f.
func handleBody[B any](m wire.Message, f func(B)) error {
	b, err := wire.Decode[B](m.Body)
	if err == nil {
		f(b)
	}
	return err
}

// checkRequest refuses an id that is 0 or in use, and requests beyond maxPendingRequests.
func (c *conn) checkRequest(id uint64) error {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if _, used := c.pendingRequests[id]; used || id == 0 {
		return fmt.Errorf("request id %d is in use, or 0", id)
	}
	if len(c.pendingRequests) >= maxPendingRequests {
		return fmt.Errorf("over %d calls at once", maxPendingRequests)
	}
	return nil
}

func (s *Server) put(p *proc, b wire.ValuedBody) {
	v := join.EncodeValue(b.Value)
	s.mu.Lock()
	defer s.mu.Unlock()
	p.values.Set(b.Name, v)
}

func (s *Server) get(r request, b wire.GetBody) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.sets.Next(); int64(b.Rank) >= int64(n) {
		join.Fail(r, wire.FailureBody{Code: wire.CodeRank, Text: fmt.Sprintf("the job has %d processes", n)})
		return
	}
	p := s.procs[b.Rank]
	if p != nil {
		if v, ok := p.values.Get(b.Key); ok {
			r.Answer(wire.Reply, v)
			return
		}
	}
	if p == nil || p.hasEnded {
		join.Fail(r, wire.FailureBody{Code: wire.CodeMissing, Failed: []uint32{b.Rank}})
		return
	}
	p.values.AwaitOwner(b.Key, r, b.Rank)
}

// join enters r into a fence or construct, and completes that with its last member.
func (s *Server) join(r request, kind wire.Kind, b wire.JoinBody) error {
	s.mu.Lock()
	r.conn.proc.clearWithdrawalLocked()
	j, err := s.joins.Enter(r, r.conn.proc.rank, kind, b)
	var context uint64
	if j != nil && kind == wire.Construct {
		s.lastContextID++
		context = s.lastContextID
	}
	s.mu.Unlock()
	if j != nil {
		j.Complete(context)
	}
	return err
}

// cancel withdraws r if it still waits. Otherwise its answer is already queued.
func (s *Server) cancel(r request, expired bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if leave, ok := r.conn.pendingRequests[r.id]; ok {
		delete(r.conn.pendingRequests, r.id)
		join.Fail(r, leave(expired))
	}
}

func (s *Server) publish(r request, b wire.ValuedBody) {
	v := join.EncodeValue(b.Value)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.published.Get(b.Name); ok {
		join.Fail(r, wire.FailureBody{Code: wire.CodePublished})
		return
	}
	s.published.Set(b.Name, v)
	r.answerWith(wire.Empty{})
}

func (s *Server) unpublish(r request, b wire.NameBody) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.published.Delete(b.Name) {
		join.Fail(r, wire.FailureBody{Code: wire.CodeNotPublished})
		return
	}
	r.answerWith(wire.Empty{})
}

func (s *Server) lookup(r request, b wire.LookupBody) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.published.Get(b.Name)
	switch {
	case ok:
		r.Answer(wire.Reply, v)
	case b.Wait:
		s.published.Await(b.Name, r, func(bool) wire.FailureBody { return wire.FailureBody{Code: wire.CodeWithdrawn} })
	default:
		r.answerWith(wire.ValueBody{})
	}
}

func (s *Server) report(r request, b wire.ValuedBody) {
	if s.opt.OnReport != nil {
		s.opt.OnReport(int(r.conn.proc.rank), b.Name, b.Value)
	}
	r.answerWith(wire.Empty{})
}
