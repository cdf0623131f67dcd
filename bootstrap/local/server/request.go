package server

import (
	"fmt"

	"github.com/ferrympi/ferry/bootstrap/internal/join"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
)

// maxWaiting is how many calls one client may have outstanding.
const maxWaiting = 1 << 16

// handle serves one request. An error means that the client does not keep to
// the protocol: its connection is closed.
func (c *conn) handle(m wire.Message) error {
	r := request{c: c, id: m.ID}
	switch m.Kind { // these have no answer
	case wire.Put:
		return serve(m, func(b wire.ValuedBody) { c.s.put(c.proc, b) })
	case wire.Life:
		return serve(m, func(b wire.LifeBody) { c.s.life(c.proc, b.Nonce) })
	case wire.GiveUp:
		return serve(m, func(b wire.GiveUpBody) { c.s.giveUp(c.proc, b) })
	case wire.Broke:
		return serve(m, func(b wire.BrokeBody) { c.s.commEvent(c.proc, b) })
	case wire.Note:
		return serve(m, func(b wire.NoteBody) { c.s.note(c.proc, b) })
	case wire.AliveAnswer:
		return serve(m, func(wire.Empty) {})
	case wire.Cancel:
		return serve(m, func(b wire.CancelBody) { c.s.cancel(r, b.Expired) })
	}
	if err := c.room(m.ID); err != nil {
		return err
	}
	switch m.Kind {
	case wire.Get:
		return serve(m, func(b wire.GetBody) { c.s.get(r, b) })
	case wire.Fence, wire.Construct:
		b, err := wire.Decode[wire.JoinBody](m.Body)
		if err != nil {
			return err
		}
		return c.s.join(r, m.Kind, b)
	case wire.Publish:
		return serve(m, func(b wire.ValuedBody) { c.s.publish(r, b) })
	case wire.Unpublish:
		return serve(m, func(b wire.NameBody) { c.s.unpublish(r, b) })
	case wire.Lookup:
		return serve(m, func(b wire.LookupBody) { c.s.lookup(r, b) })
	case wire.Psets:
		return serve(m, func(wire.Empty) { c.s.psets(r) })
	case wire.Pset:
		return serve(m, func(b wire.NameBody) { c.s.pset(r, b) })
	case wire.Change:
		return c.s.change(r, m)
	case wire.Report:
		return serve(m, func(b wire.ValuedBody) { c.s.report(r, b) })
	}
	return fmt.Errorf("message kind %d is not a request", m.Kind)
}

// serve decodes m's body and hands it to f.
func serve[B any](m wire.Message, f func(B)) error {
	b, err := wire.Decode[B](m.Body)
	if err == nil {
		f(b)
	}
	return err
}

// room refuses an id that no request may have now, and more waiting calls than the
// limit.
func (c *conn) room(id uint64) error {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if _, used := c.pending[id]; used || id == 0 {
		return fmt.Errorf("request id %d is in use, or 0", id)
	}
	if len(c.pending) >= maxWaiting {
		return fmt.Errorf("over %d calls at once", maxWaiting)
	}
	return nil
}

func (s *Server) put(p *proc, b wire.ValuedBody) {
	v := join.EncodeValue(b.Value)
	s.mu.Lock()
	defer s.mu.Unlock()
	p.put.Set(b.Name, v)
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
		if v, ok := p.put.Get(b.Key); ok {
			r.Answer(wire.Reply, v)
			return
		}
	}
	if p == nil || p.ended {
		join.Fail(r, wire.FailureBody{Code: wire.CodeMissing, Failed: []uint32{b.Rank}})
		return
	}
	p.put.AwaitPut(b.Key, r, b.Rank)
}

// join enters r into a fence or construct, and completes that when r is its last.
func (s *Server) join(r request, kind wire.Kind, b wire.JoinBody) error {
	s.mu.Lock()
	r.c.proc.rejoinsLocked()
	j, err := s.joins.Enter(r, r.c.proc.rank, kind, b)
	var context uint64
	if j != nil && kind == wire.Construct {
		s.contexts++
		context = s.contexts
	}
	s.mu.Unlock()
	if j != nil {
		j.Complete(context)
	}
	return err
}

// cancel ends the wait of r, if it still waits: its answer is on the way else.
func (s *Server) cancel(r request, expired bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if leave, ok := r.c.pending[r.id]; ok {
		delete(r.c.pending, r.id)
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
	r.reply(wire.Empty{})
}

func (s *Server) unpublish(r request, b wire.NameBody) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.published.Delete(b.Name) {
		join.Fail(r, wire.FailureBody{Code: wire.CodeNotPublished})
		return
	}
	r.reply(wire.Empty{})
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
		r.reply(wire.ValueBody{})
	}
}

func (s *Server) report(r request, b wire.ValuedBody) {
	if s.opt.OnReport != nil {
		s.opt.OnReport(int(r.c.proc.rank), b.Name, b.Value)
	}
	r.reply(wire.Empty{})
}
