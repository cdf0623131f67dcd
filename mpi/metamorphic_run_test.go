package mpi_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"

	"github.com/ferrympi/ferry/mpi"
)

// digests are, for each step, the digest of all memory that it has to do with at a rank.
type digests map[int][sha256.Size]byte

// player is one rank of a program.
type player struct {
	program
	ctx context.Context
	me  int
	rng *rand.Rand // of orders that are the rank's own
	// nil for others and after Close.
	comms []*mpi.Comm
	later []step // may be started in another order
	under []underWay
	out   digests
}

// underWay is an operation that has not been waited for.
type underWay struct {
	step int
	q    mpi.Request
	see  [][]byte

	// Freed after q; nil for other operations.
	persistent *mpi.Persistent
}

// play runs a program as one of its ranks.
func (p program) play(ctx context.Context, world *mpi.Comm) (digests, error) {
	r := &player{program: p, ctx: ctx, me: world.Rank(), out: digests{}, comms: make([]*mpi.Comm, 64)}
	r.comms[0] = world
	r.rng = rand.New(rand.NewPCG(p.Seed, uint64(r.me)))
	for _, s := range append(slices.Clone(p.Steps), step{ID: -1, Kind: "wait"}) {
		if err := r.step(s); err != nil {
			return nil, fmt.Errorf("step %v: %w", s, err)
		}
	}
	for _, c := range r.comms[1:] {
		if c != nil {
			if err := c.Close(); err != nil {
				return nil, err
			}
		}
	}
	return r.out, nil
}

// step does a step, or puts it off if it doesn't block here.
func (r *player) step(s step) error {
	c := r.comms[s.Comm]
	if c == nil && s.Kind != "wait" && s.Kind != "pause" {
		return nil
	}
	switch s.Kind {
	case "wait", "dup", "split", "close":
	case "pause":
		for range r.rng.IntN(100) {
			runtime.Gosched()
		}
		return nil
	case "message":
		if from, to := s.From%c.Size(), s.To%c.Size(); from == to ||
			(c.Rank() != from || !s.Blocking) && (c.Rank() != to || !s.RecvBlocks) {
			r.later = append(r.later, s)
			return nil
		}
	default:
		if !s.Blocking {
			r.later = append(r.later, s)
			return nil
		}
	}
	if err := r.catchUp(); err != nil {
		return err
	}
	switch s.Kind {
	case "wait":
		return r.wait(s.Vary % waits)
	case "close":
		r.comms[s.Comm] = nil
		return c.Close()
	case "dup":
		d, err := c.Dup(r.ctx)
		r.comms[s.Made] = d
		return err
	case "split":
		draw := rand.New(rand.NewPCG(r.Seed, uint64(s.ID<<16|r.me)))
		color := draw.IntN(2)
		if s.Vary%4 == 0 && draw.IntN(4) == 0 {
			color = mpi.Undefined
		}
		d, err := c.Split(r.ctx, color, draw.IntN(5)-2)
		if color == mpi.Undefined && errors.Is(err, mpi.ErrNoComm) {
			return nil
		}
		r.comms[s.Made] = d
		return err
	case "message":
		return r.message(c, s)
	}
	f, err := r.formOf(c, s)
	if err != nil {
		return err
	}
	if s.Kind == "exchange" {
		st, err := f.exchange(r.ctx)
		if err == nil {
			r.note(s.ID, f.see, &st)
		}
		return err
	}
	if s.Vary%4 == 1 && f.init != nil {
		err = r.persistent(f)
	} else {
		err = f.block(r.ctx)
	}
	if err != nil {
		return err
	}
	r.note(s.ID, f.see, nil)
	return nil
}

// persistent makes a call in its persistent form.
func (r *player) persistent(f form) error {
	p, err := f.init(r.ctx)
	if err != nil {
		return err
	}
	if err := p.Start(); err != nil {
		return err
	}
	_, err = p.Wait(r.ctx)
	return errors.Join(err, p.Free())
}

// catchUp starts deferred operations. Communicators are mixed, and the order of each is preserved.
func (r *player) catchUp() error {
	for len(r.later) > 0 {
		comm := r.later[r.rng.IntN(len(r.later))].Comm
		i := slices.IndexFunc(r.later, func(s step) bool { return s.Comm == comm })
		s := r.later[i]
		r.later = slices.Delete(r.later, i, i+1)
		if err := r.start(s); err != nil {
			return fmt.Errorf("step %v: %w", s, err)
		}
	}
	return nil
}

func (r *player) start(s step) error {
	c := r.comms[s.Comm]
	if s.Kind == "message" {
		return r.message(c, s)
	}
	f, err := r.formOf(c, s)
	if err != nil {
		return err
	}
	q, err := f.start()
	r.under = append(r.under, underWay{step: s.ID, q: q, see: f.see})
	return err
}

// formOf returns the call of a step of all members.
func (r *player) formOf(c *mpi.Comm, s step) (form, error) {
	if s.Kind == "exchange" {
		return r.exchange(c, s), nil
	}
	return formOf(r.Seed, r.me, c, s)
}

// exchange is a send to the member s.Root ranks above, and a receive from the one as many below.
func (r *player) exchange(c *mpi.Comm, s step) form {
	n := c.Size()
	to, from := (c.Rank()+s.Root)%n, (c.Rank()+n-s.Root%n)%n
	src := from
	if s.Vary%3 == 0 { // the tag is used once only
		src = mpi.AnySource
	}
	out := make([]byte, s.Bytes)
	fill(out, r.Seed, s.ID, r.me)
	if s.InPlace {
		return form{
			exchange: func(ctx context.Context) (mpi.Status, error) { return c.SendrecvReplace(ctx, out, to, s.ID, src, s.ID) },
			start:    func() (mpi.Request, error) { return c.IsendrecvReplace(out, to, s.ID, src, s.ID) },
			see:      [][]byte{out},
		}
	}
	in := make([]byte, s.Bytes+1)
	fill(in, 0, 0, -1)
	return form{
		exchange: func(ctx context.Context) (mpi.Status, error) { return c.Sendrecv(ctx, out, to, s.ID, in, src, s.ID) },
		start:    func() (mpi.Request, error) { return c.Isendrecv(out, to, s.ID, in, src, s.ID) },
		see:      [][]byte{in},
	}
}

// message does both sides of a message that this rank has.
func (r *player) message(c *mpi.Comm, s step) error {
	from, to := s.From%c.Size(), s.To%c.Size()
	if r.HasPartitioned && s.Vary%5 == 3 && from != to {
		return r.partitioned(c, s, from, to)
	}
	if c.Rank() == to {
		b := make([]byte, s.Bytes+1)
		fill(b, 0, 0, -1)
		src := from
		if s.Vary%3 == 0 { // the tag is used once only
			src = mpi.AnySource
		}
		if s.RecvBlocks && from != to {
			st, err := c.Recv(r.ctx, b, src, s.ID)
			if err != nil {
				return err
			}
			r.note(s.ID, [][]byte{b}, &st)
		} else {
			q, err := c.Irecv(b, src, s.ID)
			if err != nil {
				return err
			}
			r.under = append(r.under, underWay{step: s.ID, q: q, see: [][]byte{b}})
		}
	}
	if c.Rank() != from {
		return nil
	}
	b := make([]byte, s.Bytes)
	fill(b, r.Seed, s.ID, r.me)
	if s.Blocking && from != to {
		send := []func(context.Context, []byte, int, int) error{c.Ssend, c.Send, c.Bsend, c.Rsend}[s.Vary%4]
		return send(r.ctx, b, to, s.ID)
	}
	isend := []func([]byte, int, int) (mpi.Request, error){c.Issend, c.Isend, c.Ibsend, c.Irsend}[s.Vary%4]
	q, err := isend(b, to, s.ID)
	r.under = append(r.under, underWay{step: -1, q: q})
	return err
}

// partitioned is message with a partitioned send and receive.
func (r *player) partitioned(c *mpi.Comm, s step, from, to int) error {
	partitions := func(vary int) int {
		for n := []int{1, 2, 3, 4, 5, 7, 16, 64, 100}[vary%9]; n > 1; n-- {
			if s.Bytes%n == 0 {
				return n
			}
		}
		return 1
	}
	b, isSender, n := make([]byte, s.Bytes+1), c.Rank() == from, partitions(s.Vary/5)
	var p *mpi.Persistent
	var err error
	switch c.Rank() {
	case from:
		fill(b[:s.Bytes], r.Seed, s.ID, r.me)
		p, err = c.PsendInit(b[:s.Bytes], n, to, s.ID)
	case to:
		fill(b, 0, 0, -1)
		p, err = c.PrecvInit(b[:s.Bytes], partitions(s.Vary/50), from, s.ID)
	default:
		return nil
	}
	if err != nil {
		return err
	}
	if err := p.Start(); err != nil {
		return err
	}
	if isSender {
		for _, i := range r.rng.Perm(n) {
			if err := p.Pready(i); err != nil {
				return err
			}
		}
	}
	if isSender && !s.Blocking || !isSender && !s.RecvBlocks {
		u := underWay{step: -1, q: p.Request(), persistent: p}
		if !isSender {
			u.step, u.see = s.ID, [][]byte{b}
		}
		r.under = append(r.under, u)
		return nil
	}
	st, err := p.Wait(r.ctx)
	if err == nil && !isSender {
		r.note(s.ID, [][]byte{b}, &st)
	}
	return errors.Join(err, p.Free())
}

// waits is the number of ways to wait.
const waits = 6

// wait waits for the operations in progress. In the last way it waits for half of them.
func (r *player) wait(way int) error {
	r.rng.Shuffle(len(r.under), func(i, j int) { r.under[i], r.under[j] = r.under[j], r.under[i] })
	n := len(r.under)
	if way == waits-1 {
		n /= 2
	}
	qs, sts := make([]mpi.Request, n), make([]mpi.Status, n)
	for i := range qs {
		qs[i] = r.under[i].q
	}
	if err := r.complete(way, qs, sts); err != nil {
		return err
	}
	for i, u := range r.under[:n] {
		if u.step >= 0 {
			r.note(u.step, u.see, &sts[i])
		}
		if u.persistent != nil {
			if err := u.persistent.Free(); err != nil {
				return err
			}
		}
	}
	r.under = slices.Clone(r.under[n:])
	return nil
}

// complete completes requests in a way.
func (r *player) complete(way int, qs []mpi.Request, sts []mpi.Status) (err error) {
	switch way {
	case 0:
		for done := false; !done && err == nil; runtime.Gosched() {
			if done, err = mpi.TestAll(qs, sts); r.ctx.Err() != nil {
				return context.Cause(r.ctx)
			}
		}
		return err
	case 1:
		for i, q := range qs {
			if sts[i], err = q.Wait(r.ctx); err != nil {
				return err
			}
		}
		return nil
	case 2:
		done, some := make([]int, len(qs)), make([]mpi.Status, len(qs))
		for left := len(qs); left > 0; {
			n, err := mpi.WaitSome(r.ctx, qs, done, some)
			if err != nil {
				return err
			}
			if n <= 0 {
				return fmt.Errorf("WaitSome gives %d, with %d requests left", n, left)
			}
			for i, at := range done[:n] {
				sts[at], qs[at] = some[i], mpi.Request{}
			}
			left -= n
		}
		return nil
	case 3:
		for range qs {
			at, st, err := mpi.WaitAny(r.ctx, qs)
			if err != nil {
				return err
			}
			sts[at], qs[at] = st, mpi.Request{}
		}
		return nil
	}
	return mpi.WaitAll(r.ctx, qs, sts)
}

// note records the outcome of a step.
func (r *player) note(id int, see [][]byte, st *mpi.Status) {
	h := sha256.New()
	for _, b := range see {
		h.Write(b)
	}
	if st != nil {
		fmt.Fprint(h, st.Source, st.Tag, st.Bytes, st.Canceled)
	}
	r.out[id] = [sha256.Size]byte(h.Sum(nil))
}
