package soak

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mpi"
)

// collectives makes those of the storm, in their order, until one fails.
func (p *player) collectives(err error) {
	if err != nil { // the faulty one was quick
		p.endColl("second barrier", err, nil)
		return
	}
	for n, k := range p.storm.colls {
		if !p.step() {
			return
		}
		p.Coll.Op = k.op
		err := p.under(p.life, "collective "+k.op, func(ctx context.Context) error { return p.collective(ctx, n, k) })
		if err != nil {
			p.endColl(k.op, err, nil)
			return
		}
		p.Coll.Done++
	}
	p.Coll.Op = ""
}

// over is a context that has ended.
var over = func() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("this rank has had an error in a collective"))
	return ctx
}()

// endColl notes why there are no more collectives.
func (p *player) endColl(what string, err error, members []int) {
	k := p.classify(err, what, members)
	if k == strange {
		p.wrong("unnamed: %s: %v", what, err)
	}
	// It may have been another communicator that failed: this rank enters no collective of
	// the first one any more either, and those who wait for it there may hear of it.
	_ = mpi.Barrier(over, p.coll)
	p.teller.mu.Lock()
	defer p.teller.mu.Unlock()
	p.Coll.Class, p.Coll.Err, p.Coll.At = string(rune(k)), err.Error(), now()
}

func (p *player) collective(ctx context.Context, n int, k collective) error {
	c := p.coll
	switch k.op {
	case "barrier":
		return mpi.Barrier(ctx, c)
	case "bcast":
		got, want := make([]byte, k.size), make([]byte, k.size)
		pattern(want, -1, n)
		if p.me == k.root {
			copy(got, want)
		}
		err := mpi.Bcast(ctx, c, got, k.root)
		if err == nil && !bytes.Equal(got, want) {
			p.wrong("contents: bcast %d of %d bytes", n, k.size)
		}
		return err
	case "allreduce":
		x := make([]int64, k.size/8+1)
		for i := range x {
			x[i] = int64(p.me + i)
		}
		err := mpi.Allreduce(ctx, c, nil, x, mpi.Sum[int64]())
		for i := range x {
			if err == nil && x[i] != int64(p.storm.ranks*(p.storm.ranks-1)/2+p.storm.ranks*i) {
				p.wrong("contents: allreduce %d of %d elements: element %d is %d", n, len(x), i, x[i])
				break
			}
		}
		return err
	case "dup":
		return p.closeOverMessages(ctx, n, k)
	}
	return p.split(ctx, k)
}

// closeOverMessages makes a communicator, sends on it, and closes it while messages are
// queued that nobody has received.
func (p *player) closeOverMessages(ctx context.Context, n int, k collective) error {
	d, err := p.coll.Dup(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	// A member may have failed before it makes its end: nothing here waits for one.
	stray := func(q mpi.Request, err error) error {
		if err == nil {
			p.leave(&sending{what: fmt.Sprintf("isend %d on a dup that is closed", n), request: q, ledger: newLedger(1)})
		}
		return err
	}
	to, from := (p.me+1)%p.storm.ranks, (p.me+p.storm.ranks-1)%p.storm.ranks
	if to > p.me { // one way, lest two wait for each other
		for i := range 3 {
			err = errors.Join(err, stray(d.Isend(make([]byte, 100), to, i)))
		}
		return errors.Join(err, stray(d.Issend(make([]byte, k.size), to, 3)))
	}
	for range n {
		if st, ok, err := d.Iprobe(from, 1); err != nil {
			return err
		} else if ok {
			_, err := d.Recv(ctx, make([]byte, st.Bytes), from, 1)
			return err
		}
	}
	return nil
}

// split makes communicators of a part of the ranks, and uses the caller's.
func (p *player) split(ctx context.Context, k collective) error {
	color := func(rank int) int { return rank % 2 }
	if k.op == "split off" { // without the one that is going to fail
		color = func(rank int) int {
			return min(1, max(rank-max(p.storm.fault.rank, 0), max(p.storm.fault.rank, 0)-rank))
		}
	}
	d, err := p.coll.Split(ctx, color(p.me), 0)
	if err != nil {
		return err
	}
	defer d.Close()
	p.teller.mu.Lock()
	p.Coll.Op = "barrier after " + k.op
	p.teller.mu.Unlock()
	var members []int
	for rank := range p.storm.ranks {
		if color(rank) == color(p.me) {
			members = append(members, rank)
		}
	}
	err = mpi.Barrier(ctx, d)
	if failed, ok := errors.AsType[*mpi.ProcFailedError](err); ok { // in the ranks of the world
		world := &mpi.ProcFailedError{Cause: failed.Cause}
		for _, rank := range failed.Ranks {
			world.Ranks = append(world.Ranks, members[rank])
		}
		return world
	}
	return err
}

// finish is what a rank does when all its streams are over.
func (p *player) finish(ctx context.Context) {
	s := p.storm
	// What concerns the faulty one has ended or ends, at this rank as at the others.
	for peer := range s.ranks {
		mine := s.kind == "cut" && s.faulty(p.me)
		if peer != p.me && s.kind != "shortage" && (s.faulty(peer) || mine) && (!s.faulty(p.me) || mine) {
			p.lateCalls(ctx, peer)
		}
	}
	// And the others go on.
	var byes sync.WaitGroup
	for peer := range s.ranks {
		if peer == p.me || s.kind != "shortage" && (s.faulty(peer) || s.faulty(p.me)) {
			continue
		}
		byes.Go(func() {
			in := make([]byte, 1)
			what := fmt.Sprintf("sendrecv of a farewell with %d", peer)
			err := p.under(ctx, what, func(ctx context.Context) error {
				_, err := p.comms[0].Sendrecv(ctx, []byte{byte(p.me)}, peer, farewellTag, in, peer, farewellTag)
				return err
			})
			k := p.ends(peer, what, err)
			if k == 0 && in[0] != byte(peer) {
				p.wrong("contents: farewell of %d is %d", peer, in[0])
			}
			p.teller.mu.Lock()
			p.Bye[peer] = ""
			if k != 0 {
				p.Bye[peer] = string(rune(k))
			}
			p.teller.mu.Unlock()
		})
	}
	byes.Wait()
	if p.all.Err() != nil {
		return
	}
	if s.kind != "shortage" && s.fault.rank != everywhere && !s.faulty(p.me) {
		if err := p.rest(ctx); err != nil {
			p.Rest = err.Error()
		}
	}
	p.step()
	dies := s.kind == "kill" && s.faulty(p.me)
	if dies && !s.orderly(p.me) {
		select {} // it comes
	}
	p.closeAll()
	p.step()
	if dies {
		select {}
	}
}

// rest makes a communicator of all but the faulty rank.
func (p *player) rest(ctx context.Context) error {
	return p.under(ctx, "communicator of the others", func(ctx context.Context) error {
		g, err := p.comms[0].Group().Excl(p.storm.fault.rank)
		if err != nil {
			return err
		}
		c, err := mpi.CommFromGroup(ctx, g, "rest")
		if err != nil {
			return err
		}
		return errors.Join(mpi.Barrier(ctx, c), c.Close())
	})
}

// lateCalls makes calls that need a rank that fails, now or before.
func (p *player) lateCalls(ctx context.Context, peer int) {
	c, small, large := p.comms[0], make([]byte, 8), make([]byte, 300_000)
	waited := func(q mpi.Request, err error) func(context.Context) error {
		return func(ctx context.Context) error {
			if err == nil {
				_, err = q.Wait(ctx)
			}
			return err
		}
	}
	calls := []struct {
		op    string
		sends bool
		f     func(context.Context) error
	}{
		{"recv", false, func(ctx context.Context) error { _, err := c.Recv(ctx, small, peer, lateRecvTag); return err }},
		{"probe", false, func(ctx context.Context) error { _, err := c.Probe(ctx, peer, lateRecvTag); return err }},
		{"mprobe", false, func(ctx context.Context) error { _, _, err := c.Mprobe(ctx, peer, lateRecvTag); return err }},
		{"irecv", false, func(ctx context.Context) error { return waited(c.Irecv(small, peer, lateRecvTag))(ctx) }},
		{"iprobe", false, func(ctx context.Context) error {
			_, err := receiveBy(ctx, c, iprobeRecv, small, peer, lateRecvTag)
			return err
		}},
		{"ssend", true, func(ctx context.Context) error { return c.Ssend(ctx, small, peer, lateSendTag) }},
		{"send", true, func(ctx context.Context) error { return c.Send(ctx, small, peer, lateSendTag) }},
		{"large send", true, func(ctx context.Context) error { return c.Send(ctx, large, peer, lateSendTag) }},
		{"isend", true, func(ctx context.Context) error { return waited(c.Isend(small, peer, lateSendTag))(ctx) }},
		{"large issend", true, func(ctx context.Context) error { return waited(c.Issend(large, peer, lateSendTag))(ctx) }},
	}
	// A receive ends only when the end of the peer is known; before, a send may still be
	// taken. Any of them may be the first, by the seed.
	shift := int(p.storm.seed+uint64(p.me)) % len(calls)
	for i := range calls {
		call := calls[(i+shift)%len(calls)]
		known, what := p.told(peer), fmt.Sprintf("late %s, peer %d", call.op, peer)
		err := p.under(ctx, what, call.f)
		k := p.ends(peer, what, err)
		switch {
		case k == 0 && !call.sends:
			p.wrong("contents: %s has a message that was never sent", what)
		case k == 0 && known:
			k = tooLate
		case k == 0:
			k = accepted
		}
		ch := chapter{Op: call.op, Class: string(rune(k)), Peer: peer}
		if err != nil && err.Error() != p.Peers[peer].Err {
			ch.Err = err.Error()
		}
		p.Late = append(p.Late, ch)
		if k == hung {
			return
		}
	}
	if p.Coll.Class == "" && len(p.storm.colls) > 0 && (p.storm.kind != "cut" || p.storm.fault.rank != everywhere && !p.storm.faulty(p.me)) {
		if err := p.under(ctx, "late barrier", func(ctx context.Context) error { return mpi.Barrier(ctx, p.coll) }); err != nil {
			p.Coll.Op = "late barrier"
			p.endColl("late barrier", err, nil)
		} else {
			p.wrong("contents: a barrier without rank %d", peer)
		}
	}
}

// settleStrays waits for what nobody has received, now that communicators are closed.
func (p *player) settleStrays() {
	for _, s := range p.left {
		err := p.under(context.Background(), "stray "+s.what, func(ctx context.Context) error {
			_, err := s.request.Wait(ctx)
			return err
		})
		if p.classify(err, s.what, nil) != hung {
			p.release(s)
		}
	}
	p.left = nil
}

// closeEarly is the end of a rank that closes while others still count on it.
func (p *player) closeEarly() {
	p.moment()
	how := p.storm.fault.how
	wait := func(s *sending) (mpi.Status, error) {
		ctx, cancel := context.WithTimeoutCause(context.Background(), 100*time.Millisecond, errClosing)
		defer cancel()
		return s.request.Wait(ctx)
	}
	var still []*sending
	settle := func(cancel bool) {
		for _, s := range p.left {
			if cancel {
				if err := s.request.Cancel(); err != nil {
					p.wrong("cancel: %s: %v", s.what, err)
				}
			}
			st, err := wait(s)
			switch {
			case errors.Is(err, errClosing):
				still = append(still, s)
				continue
			case st.Canceled:
				s.ledger.set(s.i, withdrawn)
			case errors.Is(err, framework.ErrCommClosed): // On a dup that its receiver has closed.
			case err != nil:
				p.wrong("cancel: %s: %v", s.what, err)
			case s.ledger.String()[s.i] != left:
				s.ledger.set(s.i, accepted)
			}
			p.release(s)
		}
		p.left, still = still, nil
	}
	if how != "abandon" {
		for _, q := range p.posted {
			err := p.under(context.Background(), "a canceled receive", func(ctx context.Context) error {
				if err := q.Cancel(); err != nil {
					return err
				}
				_, err := q.Wait(ctx)
				return err
			})
			if err != nil && !errors.Is(err, errHung) {
				p.wrong("cancel: a receive: %v", err)
			}
		}
		if how == "settle" {
			settle(false)
		}
		settle(true)
	}
	for _, c := range append(p.comms, p.coll) {
		if err := c.Close(); err != nil {
			p.Closed = err.Error()
		}
	}
	if err := p.under(context.Background(), "close session", func(context.Context) error { return p.session.Close() }); err != nil {
		p.Closed = err.Error()
	}
	// Whoever waits for what the close has left hears of it.
	for _, s := range p.left {
		st, err := wait(s)
		switch {
		case errors.Is(err, errClosing):
			p.hangs(s.what+", after its session was closed", p.Fault)
		case err == nil && !st.Canceled && s.ledger.String()[s.i] != left:
			s.ledger.set(s.i, accepted)
		}
	}
}
