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
		return serve(m, func(b wire.ValuedBody) error { return c.s.put(c.rank, b) })
	case wire.Life:
		return serve(m, func(b wire.LifeBody) error { c.s.begin(c.rank, b.Nonce); return nil })
	case wire.Cancel:
		return serve(m, func(b wire.CancelBody) error { c.s.cancel(r, b.Expired); return nil })
	}
	if err := c.room(m.ID); err != nil {
		return err
	}
	switch m.Kind {
	case wire.Get:
		return serve(m, func(b wire.GetBody) error { return c.s.get(r, b) })
	case wire.Fence, wire.Construct:
		return serve(m, func(b wire.JoinBody) error { return c.s.join(r, m.Kind, b) })
	case wire.Publish:
		return serve(m, func(b wire.ValuedBody) error { return c.s.publish(r, b) })
	case wire.Unpublish:
		return serve(m, func(b wire.NameBody) error { return c.s.unpublish(r, b) })
	case wire.Lookup:
		return serve(m, func(b wire.LookupBody) error { return c.s.lookup(r, b) })
	case wire.Psets:
		return r.reply(wire.NamesBody{Names: c.s.names})
	case wire.Pset:
		return serve(m, func(b wire.NameBody) error { return c.s.pset(r, b) })
	case wire.Report:
		return serve(m, func(b wire.ValuedBody) error { return c.s.report(r, b) })
	}
	return fmt.Errorf("message kind %d is not a request", m.Kind)
}

// serve decodes m's body and hands it to f.
func serve[B any](m wire.Message, f func(B) error) error {
	b, err := wire.Decode[B](m.Body)
	if err != nil {
		return err
	}
	return f(b)
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

func (s *Server) begin(rank uint32, nonce uint64) {
	s.mu.Lock()
	s.procs[rank].nonce = nonce
	s.mu.Unlock()
}

func (s *Server) put(rank uint32, b wire.ValuedBody) error {
	v, err := encodeValue(b)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.procs[rank].put.set(b.Name, v)
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

func encodeValue(b wire.ValuedBody) (value, error) {
	if err := checkSizes(b.Name, b.Value, bootstrap.MaxValue); err != nil {
		return nil, err
	}
	return wire.EncodeBody(wire.ValueBody{Found: true, Value: b.Value})
}

// set stores v, and answers all who wait for it.
func (b *board) set(name string, v value) error {
	if b.values == nil {
		b.values = map[string]value{}
	}
	b.values[name] = v
	for _, r := range b.waits[name] {
		if err := r.replyLocked(v); err != nil {
			return err
		}
	}
	delete(b.waits, name)
	return nil
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

// replyLocked answers r, which may have waited, with v. The caller holds
// Server.mu.
func (r request) replyLocked(v value) error {
	delete(r.c.pending, r.id)
	h, err := wire.Header(wire.Reply, r.id, len(v))
	if err != nil {
		return err
	}
	r.c.send(h, v)
	return nil
}

func (s *Server) get(r request, b wire.GetBody) error {
	if err := checkSizes(b.Key, nil, 0); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if int64(b.Rank) >= int64(len(s.procs)) {
		r.fail(wire.FailureBody{Code: wire.CodeRank, Text: fmt.Sprintf("the job has %d processes", len(s.procs))})
		return nil
	}
	p := &s.procs[b.Rank]
	if v, ok := p.put.values[b.Key]; ok {
		return r.replyLocked(v)
	}
	if p.ended {
		r.fail(wire.FailureBody{Code: wire.CodeMissing, Failed: []uint32{b.Rank}})
		return nil
	}
	p.put.await(b.Key, r, func(expired bool) wire.FailureBody {
		code := wire.CodeWithdrawn
		if expired {
			code = wire.CodeMissing
		}
		return wire.FailureBody{Code: code, Missing: []uint32{b.Rank}}
	})
	return nil
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

func (s *Server) publish(r request, b wire.ValuedBody) error {
	v, err := encodeValue(b)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.published.values[b.Name]; ok {
		r.fail(wire.FailureBody{Code: wire.CodePublished})
		return nil
	}
	if err := s.published.set(b.Name, v); err != nil {
		return err
	}
	return r.reply(wire.Empty{})
}

func (s *Server) unpublish(r request, b wire.NameBody) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.published.values[b.Name]; !ok {
		r.fail(wire.FailureBody{Code: wire.CodeNotPublished})
		return nil
	}
	delete(s.published.values, b.Name)
	return r.reply(wire.Empty{})
}

func (s *Server) lookup(r request, b wire.LookupBody) error {
	if err := checkSizes(b.Name, nil, 0); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if v, ok := s.published.values[b.Name]; ok {
		return r.replyLocked(v)
	}
	if !b.Wait {
		return r.reply(wire.ValueBody{})
	}
	s.published.await(b.Name, r, func(bool) wire.FailureBody { return wire.FailureBody{Code: wire.CodeWithdrawn} })
	return nil
}

func (s *Server) pset(r request, b wire.NameBody) error {
	if err := checkSizes(b.Name, nil, 0); err != nil {
		return err
	}
	p, ok := s.psets[strings.ToLower(b.Name)]
	if !ok {
		names := append(bootstrap.BuiltinPsets(), s.names...)
		s.mu.Lock()
		defer s.mu.Unlock()
		r.fail(wire.FailureBody{Code: wire.CodePset, Text: "there are " + strings.Join(names, ", ")})
		return nil
	}
	return r.reply(wire.PsetBody{Name: p.Name, Ranks: p.Ranks})
}

func (s *Server) report(r request, b wire.ValuedBody) error {
	if err := checkSizes(b.Name, b.Value, bootstrap.MaxValue); err != nil {
		return err
	}
	if s.opt.OnReport != nil {
		s.opt.OnReport(int(r.c.rank), b.Name, b.Value)
	}
	return r.reply(wire.Empty{})
}
