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

// collectives executes the collectives of the storm in order until one fails.
func (p *stormPlayer) collectives(err error) {
	if err != nil { // The faulty rank failed early.
		p.endCollectives("second barrier", err, nil)
		return
	}
	for n, k := range p.storm.collectives {
		if !p.step() {
			return
		}
		p.Collectives.Op = k.op
		err := p.guarded(p.untilClose, "collective "+k.op, func(ctx context.Context) error { return p.collective(ctx, n, k) })
		if err != nil {
			p.endCollectives(k.op, err, nil)
			return
		}
		p.Collectives.Completed++
	}
	p.Collectives.Op = ""
}

// endedContext is a context that has ended.
var endedContext = func() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("a collective of this rank has failed"))
	return ctx
}()

// endCollectives records the reason for the end of collectives.
func (p *stormPlayer) endCollectives(what string, err error, members []int) {
	k := p.classify(err, what, members)
	if k == outcomeOther {
		p.recordWrong("unnamed: %s: %v", what, err)
	}
	// Another communicator may have failed. This rank calls no more collectives of the first one
	// either, and the waiting ranks must notice.
	_ = mpi.Barrier(endedContext, p.collComm)
	p.recorder.mu.Lock()
	defer p.recorder.mu.Unlock()
	p.Collectives.Class, p.Collectives.Err, p.Collectives.At = string(rune(k)), err.Error(), monotonicNow()
}

func (p *stormPlayer) collective(ctx context.Context, n int, k collective) error {
	c := p.collComm
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
			p.recordWrong("contents: bcast %d of %d bytes", n, k.size)
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
				p.recordWrong("contents: allreduce %d of %d elements: element %d is %d", n, len(x), i, x[i])
				break
			}
		}
		return err
	case "dup":
		return p.closeOverMessages(ctx, n, k)
	}
	return p.split(ctx, k)
}

// closeOverMessages creates a communicator, sends on it, and closes it with unreceived messages.
func (p *stormPlayer) closeOverMessages(ctx context.Context, n int, k collective) error {
	d, err := p.collComm.Dup(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	// A member may have failed before it creates its end. No operation here waits for one.
	stray := func(q mpi.Request, err error) error {
		if err == nil {
			p.leaveSend(&startedSend{what: fmt.Sprintf("isend %d on a dup that is closed", n), request: q, outcomes: newStreamOutcomes(1)})
		}
		return err
	}
	to, from := (p.me+1)%p.storm.ranks, (p.me+p.storm.ranks-1)%p.storm.ranks
	if to > p.me { // In one direction, so that no two ranks wait for each other.
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

// split creates communicators of some ranks, and uses that of the caller.
func (p *stormPlayer) split(ctx context.Context, k collective) error {
	color := func(rank int) int { return rank % 2 }
	if k.op == "split off" { // Without the faulty rank.
		color = func(rank int) int {
			return min(1, max(rank-max(p.storm.fault.rank, 0), max(p.storm.fault.rank, 0)-rank))
		}
	}
	d, err := p.collComm.Split(ctx, color(p.me), 0)
	if err != nil {
		return err
	}
	defer d.Close()
	p.recorder.mu.Lock()
	p.Collectives.Op = "barrier after " + k.op
	p.recorder.mu.Unlock()
	var members []int
	for rank := range p.storm.ranks {
		if color(rank) == color(p.me) {
			members = append(members, rank)
		}
	}
	err = mpi.Barrier(ctx, d)
	if failed, ok := errors.AsType[*mpi.ProcFailedError](err); ok { // Ranks of the world.
		world := &mpi.ProcFailedError{Cause: failed.Cause}
		for _, rank := range failed.Ranks {
			world.Ranks = append(world.Ranks, members[rank])
		}
		return world
	}
	return err
}

// endRank is the end of a rank after all its streams.
func (p *stormPlayer) endRank(ctx context.Context) {
	s := p.storm
	// All operations with the faulty rank end, at this rank as at the others.
	for peer := range s.ranks {
		mine := s.kind == "cut" && s.isFaulty(p.me)
		if peer != p.me && s.kind != "shortage" && (s.isFaulty(peer) || mine) && (!s.isFaulty(p.me) || mine) {
			p.lateCalls(ctx, peer)
		}
	}
	// The other ranks continue.
	var byes sync.WaitGroup
	for peer := range s.ranks {
		if peer == p.me || s.kind != "shortage" && (s.isFaulty(peer) || s.isFaulty(p.me)) {
			continue
		}
		byes.Go(func() {
			in := make([]byte, 1)
			what := fmt.Sprintf("sendrecv of a farewell with %d", peer)
			err := p.guarded(ctx, what, func(ctx context.Context) error {
				_, err := p.comms[0].Sendrecv(ctx, []byte{byte(p.me)}, peer, farewellTag, in, peer, farewellTag)
				return err
			})
			k := p.recordError(peer, what, err)
			if k == 0 && in[0] != byte(peer) {
				p.recordWrong("contents: farewell of %d is %d", peer, in[0])
			}
			p.recorder.mu.Lock()
			p.Farewell[peer] = ""
			if k != 0 {
				p.Farewell[peer] = string(rune(k))
			}
			p.recorder.mu.Unlock()
		})
	}
	byes.Wait()
	if p.untilHang.Err() != nil {
		return
	}
	if s.kind != "shortage" && s.fault.rank != everywhere && !s.isFaulty(p.me) {
		if err := p.createRest(ctx); err != nil {
			p.RestError = err.Error()
		}
	}
	p.step()
	dies := s.kind == "kill" && s.isFaulty(p.me)
	if dies && !s.mayHaveClosed(p.me) {
		select {} // The fault ends the rank.
	}
	p.closeAll()
	p.step()
	if dies {
		select {}
	}
}

// createRest creates a communicator of all ranks but the faulty one.
func (p *stormPlayer) createRest(ctx context.Context) error {
	return p.guarded(ctx, "communicator of the others", func(ctx context.Context) error {
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

// lateCalls calls operations that need a failed or failing rank.
func (p *stormPlayer) lateCalls(ctx context.Context, peer int) {
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
	// A receive ends only when the end of the peer is known. A send may still succeed before. The
	// seed selects the first call.
	shift := int(p.storm.seed+uint64(p.me)) % len(calls)
	for i := range calls {
		call := calls[(i+shift)%len(calls)]
		known, what := p.hasError(peer), fmt.Sprintf("late %s, peer %d", call.op, peer)
		err := p.guarded(ctx, what, call.f)
		k := p.recordError(peer, what, err)
		switch {
		case k == 0 && !call.sends:
			p.recordWrong("contents: %s has a message that was never sent", what)
		case k == 0 && known:
			k = outcomeTooLate
		case k == 0:
			k = outcomeSent
		}
		ch := outcome{Op: call.op, Class: string(rune(k)), Peer: peer}
		if err != nil && err.Error() != p.Peers[peer].Err {
			ch.Err = err.Error()
		}
		p.Late = append(p.Late, ch)
		if k == outcomeHung {
			return
		}
	}
	if p.Collectives.Class == "" && len(p.storm.collectives) > 0 && (p.storm.kind != "cut" || p.storm.fault.rank != everywhere && !p.storm.isFaulty(p.me)) {
		if err := p.guarded(ctx, "late barrier", func(ctx context.Context) error { return mpi.Barrier(ctx, p.collComm) }); err != nil {
			p.Collectives.Op = "late barrier"
			p.endCollectives("late barrier", err, nil)
		} else {
			p.recordWrong("contents: a barrier without rank %d", peer)
		}
	}
}

// settleStrays waits for unreceived messages after communicators have closed.
func (p *stormPlayer) settleStrays() {
	for _, s := range p.leftSends {
		err := p.guarded(context.Background(), "stray "+s.what, func(ctx context.Context) error {
			_, err := s.request.Wait(ctx)
			return err
		})
		if p.classify(err, s.what, nil) != outcomeHung {
			p.releaseSend(s)
		}
	}
	p.leftSends = nil
}

// closeEarly ends a rank while others still expect messages.
func (p *stormPlayer) closeEarly() {
	p.recordFaultTime()
	how := p.storm.fault.variant
	wait := func(s *startedSend) (mpi.Status, error) {
		ctx, cancel := context.WithTimeoutCause(context.Background(), 100*time.Millisecond, errClosing)
		defer cancel()
		return s.request.Wait(ctx)
	}
	var still []*startedSend
	settle := func(cancel bool) {
		for _, s := range p.leftSends {
			if cancel {
				if err := s.request.Cancel(); err != nil {
					p.recordWrong("cancel: %s: %v", s.what, err)
				}
			}
			st, err := wait(s)
			switch {
			case errors.Is(err, errClosing):
				still = append(still, s)
				continue
			case st.Canceled:
				s.outcomes.set(s.i, outcomeWithdrawn)
			case errors.Is(err, framework.ErrCommClosed): // On a dup that its receiver has closed.
			case err != nil:
				p.recordWrong("cancel: %s: %v", s.what, err)
			case s.outcomes.String()[s.i] != outcomeNotReceived:
				s.outcomes.set(s.i, outcomeSent)
			}
			p.releaseSend(s)
		}
		p.leftSends, still = still, nil
	}
	if how != "abandon" {
		for _, q := range p.leftRecvs {
			err := p.guarded(context.Background(), "a canceled receive", func(ctx context.Context) error {
				if err := q.Cancel(); err != nil {
					return err
				}
				_, err := q.Wait(ctx)
				return err
			})
			if err != nil && !errors.Is(err, errHung) {
				p.recordWrong("cancel: a receive: %v", err)
			}
		}
		if how == "settle" {
			settle(false)
		}
		settle(true)
	}
	for _, c := range append(p.comms, p.collComm) {
		if err := c.Close(); err != nil {
			p.CloseError = err.Error()
		}
	}
	if err := p.guarded(context.Background(), "close session", func(context.Context) error { return p.session.Close() }); err != nil {
		p.CloseError = err.Error()
	}
	// Peers of the remaining operations notice the close.
	for _, s := range p.leftSends {
		st, err := wait(s)
		switch {
		case errors.Is(err, errClosing):
			p.recordHang(s.what+", after its session was closed", p.FaultAt)
		case err == nil && !st.Canceled && s.outcomes.String()[s.i] != outcomeNotReceived:
			s.outcomes.set(s.i, outcomeSent)
		}
	}
}
