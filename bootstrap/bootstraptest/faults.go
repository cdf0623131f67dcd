package bootstraptest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
)

func faultCases() claims {
	return claims{
		kittest.Of("DeadlineNamesTheMissing", Want{Size: 5, Timeout: short}, deadlineNames),
		kittest.Of("LateMemberDoesNotJoinWhatFailed", Want{Size: 2, Timeout: short}, lateMember),
		kittest.Of("DeathEndsWaits", Want{Size: 4, Timeout: long}, deathEndsWaits),
		kittest.Of("DeathIsAnEvent", Want{Size: 3, Timeout: long}, deathIsAnEvent),
		kittest.Of("CloseIsNoDeath", Want{Size: 3, Timeout: short}, closeIsNoDeath),
		kittest.Of("CanceledContextWithdraws", Want{Size: 2, Timeout: long}, cancelWithdraws),
		kittest.Of("CanceledMemberIsMissing", Want{Size: 2, Timeout: short}, canceledIsMissing),
		kittest.Of("EndedContextSendsNothing", Want{Size: 2, Timeout: long}, endedContext),
		kittest.Of("CloseDuringWait", Want{Size: 2, Timeout: long}, closeDuringWait),
		kittest.Of("UseAfterClose", Want{Size: 1, Timeout: long}, useAfterClose),
	}
}

func deadlineNames(ctx context.Context, j *job) error {
	here, gone := []int{0, 2}, j.group(1, 3, 4)
	for _, again := range []string{"first", "again"} {
		err := each(here, func(r int) error {
			err := j.Clients[r].Fence(ctx, j.world(), "t")
			if err := errors.Join(wantIs("fence", err, framework.ErrTimeout), wantMissing("fence", err, gone, nil)); err != nil {
				return err
			}
			_, err = j.Clients[r].Construct(ctx, j.world(), "t", nil)
			return errors.Join(wantIs("construct", err, framework.ErrTimeout), wantMissing("construct", err, gone, nil))
		})
		if err != nil {
			return fmt.Errorf("%s: %w", again, err)
		}
	}
	// Those who are there can still meet.
	return each(here, func(r int) error { return j.Clients[r].Fence(ctx, j.group(here...), "t") })
}

func lateMember(ctx context.Context, j *job) error {
	for r := range 2 {
		if err := wantMissing("fence", j.Clients[r].Fence(ctx, j.world(), "t"), j.group(1-r), nil); err != nil {
			return err
		}
	}
	return nil
}

// killable skips when the job can't lose a process.
func killable(j *job) error {
	if j.Kill == nil {
		return fmt.Errorf("the kit can't kill a process of this implementation: %w", ErrSkip)
	}
	return nil
}

func deathEndsWaits(ctx context.Context, j *job) error {
	if err := killable(j); err != nil {
		return err
	}
	const victim = 3
	dead := j.group(victim)
	live := all(victim)
	waits := []func(c bootstrap.Client) error{
		func(c bootstrap.Client) error { return c.Fence(ctx, j.world(), "f") },
		func(c bootstrap.Client) error { _, err := c.Construct(ctx, j.world(), "c", nil); return err },
		func(c bootstrap.Client) error { _, err := c.Get(ctx, dead[0], "never"); return err },
	}
	if err := j.Clients[victim].Put(ctx, "last", []byte("words")); err != nil {
		return err
	}
	if err := each(all(4), func(r int) error { return j.Clients[r].Fence(ctx, j.world(), "start") }); err != nil {
		return err
	}
	killed := make(chan error, 1)
	go func() { killed <- j.Kill(victim) }()
	err := each(live, func(r int) error {
		for round := range 2 { // the first may wait when the death comes; the second finds it known
			for i, wait := range waits {
				err := wait(j.Clients[r])
				what := fmt.Sprintf("round %d, wait %d", round, i)
				if err := errors.Join(wantIs(what, err, framework.ErrProcFailed), wantMissing(what, err, nil, dead)); err != nil {
					return err
				}
			}
		}
		v, err := j.Clients[r].Get(ctx, dead[0], "last")
		if err != nil || string(v) != "words" {
			return fmt.Errorf("what the dead process had put is %q, %v", v, err)
		}
		// The living go on.
		return j.Clients[r].Fence(ctx, j.group(live...), "f")
	})
	return errors.Join(err, <-killed)
}

func deathIsAnEvent(ctx context.Context, j *job) error {
	if err := killable(j); err != nil {
		return err
	}
	src := make([]bootstrap.EventSource, 2)
	for r := range src {
		var ok bool
		if src[r], ok = framework.As[bootstrap.EventSource](j.Clients[r]); !ok {
			return fmt.Errorf("no EventSource: %w", ErrSkip)
		}
	}
	listen := func(r int) <-chan bootstrap.Event {
		ch := make(chan bootstrap.Event, 16)
		src[r].OnEvent(func(e bootstrap.Event) { ch <- e })
		return ch
	}
	expect := func(ch <-chan bootstrap.Event, dead framework.Proc) error {
		select {
		case e := <-ch:
			if e.Kind != bootstrap.ProcDied || e.Proc != dead || e.Reason == "" {
				return fmt.Errorf("event %+v, want the death of %s with a reason", e, dead)
			}
			return nil
		case <-ctx.Done():
			return fmt.Errorf("no event of the death of %s", dead)
		}
	}
	dead := j.group(2)[0]
	early := listen(0)
	if err := j.Kill(2); err != nil {
		return err
	}
	if err := expect(early, dead); err != nil {
		return err
	}
	// Who begins to listen now hears of it too, and so does a second listener.
	if err := errors.Join(expect(listen(1), dead), expect(listen(0), dead)); err != nil {
		return err
	}
	late := listen(1)
	if err := errors.Join(expect(late, dead), j.Clients[0].Fence(ctx, j.group(0), "t")); err != nil {
		return err
	}
	select {
	case e := <-late:
		return fmt.Errorf("a second event: %+v", e)
	default:
		return nil
	}
}

// closeIsNoDeath: who closed is merely absent.
func closeIsNoDeath(ctx context.Context, j *job) error {
	events := make(chan bootstrap.Event, 16)
	if src, ok := framework.As[bootstrap.EventSource](j.Clients[0]); ok {
		src.OnEvent(func(e bootstrap.Event) { events <- e })
	}
	if err := j.Clients[1].Put(ctx, "k", []byte("stays")); err != nil {
		return err
	}
	if err := each(all(3), func(r int) error { return j.Clients[r].Fence(ctx, j.world(), "t") }); err != nil {
		return err
	}
	if err := j.Clients[1].Close(); err != nil {
		return err
	}
	if err := wantMissing("fence", j.Clients[0].Fence(ctx, j.group(0, 1), "t"), j.group(1), nil); err != nil {
		return err
	}
	v, err := j.Clients[0].Get(ctx, j.group(1)[0], "k")
	if err != nil || string(v) != "stays" {
		return fmt.Errorf("what a closed process had put is %q, %v", v, err)
	}
	select {
	case e := <-events:
		return fmt.Errorf("event %+v after a close", e)
	default:
		return nil
	}
}

var errCause = errors.New("the kit's own reason")

// cancelWithdraws: after a canceled call both sides can meet under the same
// tag, and the canceled call has left nothing behind.
func cancelWithdraws(ctx context.Context, j *job) error {
	c := j.Clients[0]
	other := j.group(1)[0]
	calls := map[string]func(context.Context) error{
		"fence":     func(ctx context.Context) error { return c.Fence(ctx, j.world(), "t") },
		"construct": func(ctx context.Context) error { _, err := c.Construct(ctx, j.world(), "t", []byte("old")); return err },
		"get":       func(ctx context.Context) error { _, err := c.Get(ctx, other, "never"); return err },
	}
	for what, call := range calls {
		for _, delay := range []time.Duration{0, time.Millisecond} {
			cctx, cancel := context.WithCancelCause(ctx)
			t := time.AfterFunc(delay, func() { cancel(errCause) })
			err := call(cctx)
			t.Stop()
			cancel(nil)
			if err := wantIs(what, err, errCause); err != nil {
				return err
			}
			if errors.Is(err, framework.ErrTimeout) {
				return fmt.Errorf("%s: %v is a timeout too", what, err)
			}
		}
	}
	var seen ids
	return each(all(2), func(r int) error {
		return errors.Join(
			j.Clients[r].Fence(ctx, j.world(), "t"),
			construct(ctx, j, j.Clients[r], all(2), "t", &seen, "new"))
	})
}

func canceledIsMissing(ctx context.Context, j *job) error {
	cctx, cancel := context.WithTimeout(ctx, short/4)
	defer cancel()
	if err := wantIs("fence", j.Clients[0].Fence(cctx, j.world(), "t"), context.DeadlineExceeded); err != nil {
		return err
	}
	return wantMissing("fence", j.Clients[1].Fence(ctx, j.world(), "t"), j.group(0), nil)
}

func endedContext(ctx context.Context, j *job) error {
	cctx, cancel := context.WithCancelCause(ctx)
	cancel(errCause)
	c := j.Clients[0]
	_, err1 := c.Get(cctx, j.group(0)[0], "k")
	_, err2 := c.Construct(cctx, j.world(), "t", nil)
	return errors.Join(
		wantIs("put", c.Put(cctx, "k", nil), errCause),
		wantIs("get", err1, errCause),
		wantIs("construct", err2, errCause),
		wantIs("fence", c.Fence(cctx, j.world(), "t"), errCause),
		each(all(2), func(r int) error { return j.Clients[r].Fence(ctx, j.world(), "t") }))
}

func closeDuringWait(ctx context.Context, j *job) error {
	c := j.Clients[0]
	other := j.group(1)[0]
	begun := make(chan struct{}, 3)
	results := make(chan error, 3)
	for what, call := range map[string]func() error{
		"fence":     func() error { return c.Fence(ctx, j.world(), "t") },
		"construct": func() error { _, err := c.Construct(ctx, j.world(), "t", nil); return err },
		"get":       func() error { _, err := c.Get(ctx, other, "never"); return err },
	} {
		go func() {
			begun <- struct{}{}
			results <- wantIs(what, call(), framework.ErrClosed)
		}()
	}
	for range 3 {
		<-begun
	}
	err := c.Close()
	for range 3 {
		err = errors.Join(err, <-results)
	}
	return err
}

func useAfterClose(ctx context.Context, j *job) error {
	c := j.Clients[0]
	g := j.world()
	if err := c.Close(); err != nil {
		return err
	}
	_, err1 := c.Get(ctx, g[0], "k")
	_, err2 := c.Construct(ctx, g, "t", nil)
	errs := []error{
		wantIs("put", c.Put(ctx, "k", nil), framework.ErrClosed),
		wantIs("get", err1, framework.ErrClosed),
		wantIs("construct", err2, framework.ErrClosed),
		wantIs("fence", c.Fence(ctx, g, "t"), framework.ErrClosed),
		wantIs("second close", c.Close(), framework.ErrClosed),
	}
	if d, ok := framework.As[bootstrap.Directory](c); ok {
		_, _, err := d.Lookup(ctx, "n", true)
		errs = append(errs, wantIs("publish", d.Publish(ctx, "n", nil), framework.ErrClosed),
			wantIs("lookup", err, framework.ErrClosed))
	}
	if p, ok := framework.As[bootstrap.PsetSource](c); ok {
		_, err1 := p.Psets(ctx)
		_, err2 := p.Pset(ctx, bootstrap.PsetWorld)
		errs = append(errs, wantIs("psets", err1, framework.ErrClosed), wantIs("pset", err2, framework.ErrClosed))
	}
	if id := c.Identity(); id.Proc != g[0] {
		errs = append(errs, fmt.Errorf("identity changed to %v", id.Proc))
	}
	return errors.Join(errs...)
}
