package pmltest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/pml"
)

func failureCases() claims {
	return claims{
		kittest.Of("PeerFailureEndsEverythingPending", 3, peerFails),
		kittest.Of("FlushedMessagesOutliveTheirSender", 2, flushed),
		kittest.Of("ProcessThatHasLeftHarmsNoOtherReceive", 3, hasLeft),
		kittest.Of("InspectAndRouteSayWhatThereIs", 2, inspect),
	}
}

func peerFails(ctx context.Context, f *fixture) error {
	err := Each(f.comms, func(rank int, c pml.Comm) error { // all paths are open
		for other := range f.comms {
			if other != rank {
				if err := meet(ctx, c, other); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	c := f.comms[0]
	for i := range 3 {
		if err := send(ctx, f.comms[1], 0, 1, data(i, 100)); err != nil {
			return err
		}
	}
	// Who sends is done before a network has delivered, and may die meanwhile.
	if err := until(ctx, "arrival", func() bool { return f.unexpected(0) == 3 }); err != nil {
		return err
	}
	known, err := irecv(c, 1, 2, make([]byte, 10))
	if err != nil {
		return err
	}
	wild, err := irecv(c, pml.AnySource, 2, make([]byte, 10))
	if err != nil {
		return err
	}
	other, err := irecv(c, 2, 2, make([]byte, 10))
	if err != nil {
		return err
	}
	offer, err := isend(c, 1, 3, data(0, 100000), pml.Standard)
	if err != nil {
		return err
	}
	synchronous, err := isend(c, 1, 3, data(0, 100000), pml.Synchronous)
	if err != nil {
		return err
	}
	blocked := make(chan error, 1)
	go func() {
		_, err := c.Recv(ctx, pml.Buffer{}, 1, 4, p2p)
		blocked <- err
	}()
	if err := until(ctx, "posting", func() bool { return f.posted(0) == 4 }); err != nil {
		return err
	}
	id := f.Group()[1].Life
	if err := f.Kill(1); err != nil {
		return err
	}
	f.Procs[0].Module.PeerFailed(id, "signal: killed")
	f.Procs[0].Module.PeerFailed(id, "signal: killed") // the news may come twice
	_, err = known.wait(ctx)
	errs := []error{wantError("receive from the dead", err, framework.ErrProcFailed)}
	_, err = wild.wait(ctx)
	errs = append(errs, wantError("receive from any, with a dead member", err, framework.ErrProcFailedPending))
	if _, err = offer.wait(ctx); err != nil || !f.networked() { // a network may have taken it
		errs = append(errs, wantError("send to the dead, offered before", err, framework.ErrProcFailed))
	}
	_, err = synchronous.wait(ctx)
	errs = append(errs, wantError("synchronous send to the dead, offered before", err, framework.ErrProcFailed))
	errs = append(errs, wantError("blocked receive from the dead", <-blocked, framework.ErrProcFailed))
	var failed *framework.ProcFailedError
	if _, err := c.Recv(ctx, pml.Buffer{}, 1, 9, p2p); !errors.As(err, &failed) || len(failed.Ranks) != 1 || failed.Ranks[0] != 1 {
		errs = append(errs, fmt.Errorf("new receive from the dead: %v, want a ProcFailedError that names rank 1", err))
	}
	errs = append(errs, wantError("new send to the dead", send(ctx, c, 1, 9, nil), framework.ErrProcFailed))
	_, err = c.Probe(ctx, 1, 9, p2p)
	errs = append(errs, wantError("probe for the dead", err, framework.ErrProcFailed))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	// What had been sent before is delivered.
	for i := range 3 {
		if err := want(ctx, c, 1, 1, data(i, 100), 1, 1); err != nil {
			return fmt.Errorf("sent before the failure: %w", err)
		}
	}
	// Others go on.
	if err := send(ctx, f.comms[2], 0, 2, data(1, 10)); err != nil {
		return err
	}
	_, err = other.wait(ctx)
	return err
}

func wantError(what string, err, target error) error {
	if !errors.Is(err, target) {
		return fmt.Errorf("%s: %v, want %v", what, err, target)
	}
	return nil
}

// flushed: after Flush a process may end, and its messages arrive.
func flushed(ctx context.Context, f *fixture) error {
	if err := Each(f.comms, func(rank int, c pml.Comm) error { return meet(ctx, c, 1-rank) }); err != nil {
		return err
	}
	fresh, err := f.Comm(f.policy) // whose members have not met
	if err != nil {
		return err
	}
	most := 1 << 16
	if f.networked() { // it takes all there is, if not all at a time
		most = 1 << 12
	}
	release := f.hold(1)
	var sent [][]byte
	for len(sent) < most {
		b := data(len(sent), 500)
		r, err := isend(fresh[0], 1, 1, b, pml.Standard)
		if err == nil {
			err = r.r.Free(r.gen)
		}
		if err != nil {
			release()
			return err
		}
		if sent = append(sent, b); len(sent)%64 == 0 && f.sends(0, "queued") > 0 {
			break
		}
	}
	stop, cancel := context.WithCancelCause(ctx)
	cancel(errEnough)
	queued := f.sends(0, "queued") > 0
	err = f.Procs[0].Module.Flush(stop)
	release()
	if !queued && f.networked() {
		err = errEnough // the network has taken all
	}
	if err := wantError("flush with an ended context, while sends are queued", err, errEnough); err != nil {
		return err
	}
	got := make(chan error, 1)
	go func() { // posted while the messages are under way
		got <- want(ctx, fresh[1], 0, pml.AnyTag, sent[0], 0, 1)
	}()
	if err := f.Procs[0].Module.Flush(ctx); err != nil {
		return err
	}
	if err := f.Kill(0); err != nil {
		return err
	}
	if err := <-got; err != nil {
		return fmt.Errorf("message 0 of %d: %w", len(sent), err)
	}
	for i, b := range sent[1:] {
		if err := want(ctx, fresh[1], 0, pml.AnyTag, b, 0, 1); err != nil {
			return fmt.Errorf("message %d of %d: %w", i+1, len(sent), err)
		}
	}
	return nil
}

// flushAlone is how long a flush is tried while the receiver rests. A network may need
// him to say that a message is on its way.
const flushAlone = 100 * time.Millisecond

// hasLeft: a process sends to one that never sent to it, and ends in good order.
// What it sent is received, and a receive from any goes on waiting for others,
// although nothing can be answered any more.
func hasLeft(ctx context.Context, f *fixture) error {
	known, err := f.Comm(cid.PolicyAgree)
	if err != nil {
		return err
	}
	if err := send(ctx, known[0], 1, 1, data(0, 4)); err != nil { // the path there is open, and none back
		return err
	}
	if err := want(ctx, known[1], 0, 1, data(0, 4), 0, 1); err != nil {
		return err
	}
	got := make([]byte, 100)
	first, err := irecv(f.comms[1], 0, 1, got)
	if err != nil {
		return err
	}
	wild, err := irecv(f.comms[1], pml.AnySource, 2, make([]byte, 4))
	if err != nil {
		return err
	}
	if f.networked() { // a message goes out when the receiver's id is known
		if err := send(ctx, f.comms[0], 1, 3, nil); err != nil {
			return err
		}
	}
	release := sync.OnceFunc(f.hold(1))
	err = send(ctx, f.comms[0], 1, 1, data(1, 100))
	if err == nil {
		alone, cancel := context.WithTimeout(ctx, flushAlone)
		if err = f.Procs[0].Module.Flush(alone); alone.Err() != nil {
			release()
			err = f.Procs[0].Module.Flush(ctx)
		}
		cancel()
	}
	if err == nil {
		err = f.Kill(0)
	}
	release()
	if err != nil {
		return err
	}
	st, err := first.wait(ctx)
	if err == nil {
		err = compare(st, got, data(1, 100), 0, 1)
	}
	if err != nil {
		return fmt.Errorf("sent before it left: %w", err)
	}
	if err := send(ctx, f.comms[2], 1, 2, data(2, 4)); err != nil {
		return err
	}
	if _, err := wild.wait(ctx); err != nil {
		return fmt.Errorf("a receive from any source: %w", err)
	}
	return nil
}

func inspect(ctx context.Context, f *fixture) error {
	r, err := irecv(f.comms[1], pml.AnySource, 7, make([]byte, 9))
	if err != nil {
		return err
	}
	s, err := isend(f.comms[0], 1, 8, data(0, 100000), pml.Standard)
	if err != nil {
		return err
	}
	if err := until(ctx, "arrival", func() bool { return f.unexpected(1) == 1 }); err != nil {
		return err
	}
	for _, c := range f.Procs[1].Module.Inspect().Comms {
		if len(c.Posted) != 1 || c.Posted[0].Tag != 7 || c.Posted[0].Peer != pml.AnySource || c.Posted[0].Bytes != 9 {
			return fmt.Errorf("posted: %+v", c.Posted)
		}
		if len(c.Unexpected) != 1 || c.Unexpected[0].Tag != 8 || c.Unexpected[0].Peer != 0 || c.Unexpected[0].Bytes != 100000 {
			return fmt.Errorf("unexpected: %+v", c.Unexpected)
		}
	}
	if n := f.sends(0, "offered"); n != 1 && !f.networked() {
		return fmt.Errorf("%d sends are offered, want 1", n)
	}
	route := f.Procs[0].Module.Route(f.Group()[1].Life)
	if route.PML == "" || route.Transport == "" || route.Device == "" {
		return fmt.Errorf("route: %+v", route)
	}
	if err := r.r.Cancel(r.gen); err != nil {
		return err
	}
	if _, err := r.wait(ctx); err != nil {
		return err
	}
	if err := want(ctx, f.comms[1], 0, 8, data(0, 100000), 0, 8); err != nil {
		return err
	}
	_, err = s.wait(ctx)
	return err
}
