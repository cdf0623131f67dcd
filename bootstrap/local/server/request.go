package server

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/local/internal/wire"
)

// maxWaiting is how many calls one client may have outstanding.
const maxWaiting = 1 << 16

// handle serves one request. An error means that the client does not keep to
// the protocol: its connection is closed.
func (c *conn) handle(m wire.Message) error {
	r := request{c, m.ID}
	switch m.Kind { // these have no answer
	case wire.Put:
		return serve(m, func(b wire.ValuedBody) { c.s.put(c.rank, b) })
	case wire.Life:
		return serve(m, func(b wire.LifeBody) { c.s.life(c.rank, b.Nonce) })
	case wire.GiveUp:
		return serve(m, func(b wire.GiveUpBody) { c.s.giveUp(c.rank, b) })
	case wire.Broke:
		return serve(m, func(b wire.BrokeBody) { c.s.broke(c.rank, b) })
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
		return serve(m, func(wire.Empty) { r.reply(wire.NamesBody{Names: c.s.names}) })
	case wire.Pset:
		return serve(m, func(b wire.NameBody) { c.s.pset(r, b) })
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

func (s *Server) put(rank uint32, b wire.ValuedBody) {
	v := encodeValue(b)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.procs[rank].put.set(b.Name, v)
}

// A board has named values, and who waits for one that is not there yet. It is
// guarded by Server.mu. The zero board is empty.
type board struct {
	values map[string]value
	waits  map[string][]request
}

// A value is an encoded ValueBody. It is encoded once, when it is put: however
// many ask for a large one, none of their answers copies it, and none holds
// Server.mu for longer than it takes to queue it.
type value []byte

func encodeValue(b wire.ValuedBody) value {
	return wire.EncodeBody(wire.ValueBody{Found: true, Value: b.Value})
}

// set stores v, and answers all who wait for it.
func (b *board) set(name string, v value) {
	if b.values == nil {
		b.values = map[string]value{}
	}
	b.values[name] = v
	for _, r := range b.waits[name] {
		r.replyLocked(v)
	}
	delete(b.waits, name)
}

// await has r wait for name. If it is withdrawn, failure says with what to answer.
func (b *board) await(name string, r request, failure withdraw) {
	if b.waits == nil {
		b.waits = map[string][]request{}
	}
	b.waits[name] = append(b.waits[name], r)
	r.c.pending[r.id] = func(expired bool) wire.FailureBody {
		rs := slices.DeleteFunc(b.waits[name], func(x request) bool { return x == r })
		if b.waits[name] = rs; len(rs) == 0 {
			delete(b.waits, name)
		}
		return failure(expired)
	}
}

func (s *Server) get(r request, b wire.GetBody) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if int64(b.Rank) >= int64(len(s.procs)) {
		r.fail(wire.FailureBody{Code: wire.CodeRank, Text: fmt.Sprintf("the job has %d processes", len(s.procs))})
		return
	}
	p := &s.procs[b.Rank]
	if v, ok := p.put.values[b.Key]; ok {
		r.replyLocked(v)
		return
	}
	if p.ended {
		r.fail(wire.FailureBody{Code: wire.CodeMissing, Failed: []uint32{b.Rank}})
		return
	}
	p.put.await(b.Key, r, func(expired bool) wire.FailureBody {
		code := wire.CodeWithdrawn
		if expired {
			code = wire.CodeMissing
		}
		return wire.FailureBody{Code: code, Missing: []uint32{b.Rank}}
	})
}

// cancel ends the wait of r, if it still waits: its answer is on the way else.
func (s *Server) cancel(r request, expired bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if leave, ok := r.c.pending[r.id]; ok {
		delete(r.c.pending, r.id)
		r.fail(leave(expired))
	}
}

func (s *Server) publish(r request, b wire.ValuedBody) {
	v := encodeValue(b)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.published.values[b.Name]; ok {
		r.fail(wire.FailureBody{Code: wire.CodePublished})
		return
	}
	s.published.set(b.Name, v)
	r.reply(wire.Empty{})
}

func (s *Server) unpublish(r request, b wire.NameBody) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.published.values[b.Name]; !ok {
		r.fail(wire.FailureBody{Code: wire.CodeNotPublished})
		return
	}
	delete(s.published.values, b.Name)
	r.reply(wire.Empty{})
}

func (s *Server) lookup(r request, b wire.LookupBody) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.published.values[b.Name]
	switch {
	case ok:
		r.replyLocked(v)
	case b.Wait:
		s.published.await(b.Name, r, func(bool) wire.FailureBody { return wire.FailureBody{Code: wire.CodeWithdrawn} })
	default:
		r.reply(wire.ValueBody{})
	}
}

func (s *Server) pset(r request, b wire.NameBody) {
	if p, ok := s.psets[strings.ToLower(b.Name)]; ok {
		r.reply(wire.PsetBody{Name: p.Name, Ranks: p.Ranks})
		return
	}
	names := append(bootstrap.BuiltinPsets(), s.names...)
	s.mu.Lock()
	defer s.mu.Unlock()
	r.fail(wire.FailureBody{Code: wire.CodePset, Text: "there are " + strings.Join(names, ", ")})
}

func (s *Server) report(r request, b wire.ValuedBody) {
	if s.opt.OnReport != nil {
		s.opt.OnReport(int(r.c.rank), b.Name, b.Value)
	}
	r.reply(wire.Empty{})
}
