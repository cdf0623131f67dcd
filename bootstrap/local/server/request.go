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
	if m.ID == 0 && m.Kind != wire.Put && m.Kind != wire.Life {
		return fmt.Errorf("id 0")
	}
	switch m.Kind {
	case wire.Put:
		return serve(m, func(b wire.PutBody) error { return c.s.put(c.rank, b) })
	case wire.Life:
		return serve(m, func(b wire.LifeBody) error { c.s.begin(c.rank, b.Nonce); return nil })
	case wire.Get:
		return serve(m, func(b wire.GetBody) error { return c.s.get(r, b) })
	case wire.Fence, wire.Construct:
		if err := c.room(m.ID); err != nil {
			return err
		}
		return serve(m, func(b wire.JoinBody) error { return c.s.join(r, m.Kind, b) })
	case wire.Cancel:
		return serve(m, func(b wire.CancelBody) error { c.s.cancel(r, b.Expired); return nil })
	case wire.Publish:
		return serve(m, func(b wire.PublishBody) error { return c.s.publish(r, b) })
	case wire.Unpublish:
		return serve(m, func(b wire.NameBody) error { return c.s.unpublish(r, b) })
	case wire.Lookup:
		return serve(m, func(b wire.LookupBody) error { return c.s.lookup(r, b) })
	case wire.Psets:
		return r.reply(wire.NamesBody{Names: c.s.names})
	case wire.Pset:
		return serve(m, func(b wire.NameBody) error { return c.s.pset(r, b) })
	case wire.Report:
		return serve(m, func(b wire.PublishBody) error { return c.s.report(r, b) })
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

// room refuses an id that is in use, and more waiting calls than the limit.
func (c *conn) room(id uint64) error {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if _, ok := c.pending[id]; ok {
		return fmt.Errorf("request id %d is in use", id)
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

func (s *Server) put(rank uint32, b wire.PutBody) error {
	if err := checkName("key", b.Key); err != nil {
		return err
	}
	if n := len(b.Value); n > bootstrap.MaxValue {
		return tooLong("value", n, bootstrap.MaxValue)
	}
	v, err := encodeValue(b.Value)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &s.procs[rank]
	if p.values == nil {
		p.values = map[string]value{}
	}
	p.values[b.Key] = v
	for _, r := range p.waits[b.Key] {
		if err := r.replyLocked(v); err != nil {
			return err
		}
	}
	delete(p.waits, b.Key)
	return nil
}

// A value is an encoded ValueBody. It is encoded once, when it is put: however
// many ask for a large one, none of their answers copies it, and none holds
// Server.mu for longer than it takes to queue it.
type value []byte

func encodeValue(b []byte) (value, error) {
	return wire.EncodeBody(wire.ValueBody{Found: true, Value: b})
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
	if err := checkName("key", b.Key); err != nil {
		return err
	}
	if err := r.c.room(r.id); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if int64(b.Rank) >= int64(len(s.procs)) {
		r.fail(wire.FailureBody{Code: wire.CodeRank, Text: fmt.Sprintf("the job has %d processes", len(s.procs))})
		return nil
	}
	p := &s.procs[b.Rank]
	if v, ok := p.values[b.Key]; ok {
		return r.replyLocked(v)
	}
	if p.ended {
		r.fail(wire.FailureBody{Code: wire.CodeMissing, Failed: []uint32{b.Rank}})
		return nil
	}
	if p.waits == nil {
		p.waits = map[string][]request{}
	}
	p.waits[b.Key] = append(p.waits[b.Key], r)
	r.wait(getWait{b.Rank, b.Key})
	return nil
}

type getWait struct {
	rank uint32
	key  string
}

func (w getWait) withdraw(s *Server, r request, expired bool) wire.FailureBody {
	remove(s.procs[w.rank].waits, w.key, r)
	code := wire.CodeWithdrawn
	if expired {
		code = wire.CodeMissing
	}
	return wire.FailureBody{Code: code, Missing: []uint32{w.rank}}
}

// remove takes r out of m[key].
func remove(m map[string][]request, key string, r request) {
	rs := slices.DeleteFunc(m[key], func(x request) bool { return x == r })
	if len(rs) == 0 {
		delete(m, key)
		return
	}
	m[key] = rs
}

// cancel ends the wait of r, if it still waits: its answer is on the way else.
func (s *Server) cancel(r request, expired bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w, ok := r.c.pending[r.id]
	if !ok {
		return
	}
	delete(r.c.pending, r.id)
	r.fail(w.withdraw(s, r, expired))
}

func (s *Server) publish(r request, b wire.PublishBody) error {
	if err := checkName("name", b.Name); err != nil {
		return err
	}
	if n := len(b.Value); n > bootstrap.MaxValue {
		return tooLong("value", n, bootstrap.MaxValue)
	}
	v, err := encodeValue(b.Value)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.values[b.Name]; ok {
		r.fail(wire.FailureBody{Code: wire.CodePublished})
		return nil
	}
	s.values[b.Name] = v
	for _, w := range s.lookups[b.Name] {
		if err := w.replyLocked(v); err != nil {
			return err
		}
	}
	delete(s.lookups, b.Name)
	return r.reply(wire.Empty{})
}

func (s *Server) unpublish(r request, b wire.NameBody) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.values[b.Name]; !ok {
		r.fail(wire.FailureBody{Code: wire.CodeNotPublished})
		return nil
	}
	delete(s.values, b.Name)
	return r.reply(wire.Empty{})
}

func (s *Server) lookup(r request, b wire.LookupBody) error {
	if err := checkName("name", b.Name); err != nil {
		return err
	}
	if err := r.c.room(r.id); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if v, ok := s.values[b.Name]; ok {
		return r.replyLocked(v)
	}
	if !b.Wait {
		return r.reply(wire.ValueBody{})
	}
	s.lookups[b.Name] = append(s.lookups[b.Name], r)
	r.wait(lookupWait{b.Name})
	return nil
}

type lookupWait struct{ name string }

func (w lookupWait) withdraw(s *Server, r request, _ bool) wire.FailureBody {
	remove(s.lookups, w.name, r)
	return wire.FailureBody{Code: wire.CodeWithdrawn}
}

func (s *Server) pset(r request, b wire.NameBody) error {
	if err := checkName("name", b.Name); err != nil {
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

func (s *Server) report(r request, b wire.PublishBody) error {
	if err := checkName("name", b.Name); err != nil {
		return err
	}
	if n := len(b.Value); n > bootstrap.MaxValue {
		return tooLong("value", n, bootstrap.MaxValue)
	}
	if s.opt.OnReport != nil {
		s.opt.OnReport(int(r.c.rank), b.Name, b.Value)
	}
	return r.reply(wire.Empty{})
}
