package bootstraptest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
)

func faultCases() claimList {
	return claimList{
		kittest.New("DeadlineNamesMissing", Want{Size: 5, Timeout: shortTimeout, Needs: Names | Subsets}, (*job).deadlineNamesMissing),
		kittest.New("CallDeadlineNamesMissing", Want{Size: 5, Timeout: longTimeout, Needs: Names | Subsets}, (*job).callDeadlineNamesMissing),
		kittest.New("LateMemberDoesNotEnterFailedFence", Want{Size: 2, Timeout: shortTimeout, Needs: Names | Withdrawal}, (*job).lateMemberIsMissing),
		kittest.New("DeathEndsWaits", Want{Size: 4, Timeout: longTimeout, Needs: Deaths | Subsets}, (*job).deathEndsWaits),
		kittest.New("DeathIsAnEvent", Want{Size: 3, Timeout: longTimeout}, (*job).deathIsAnEvent),
		kittest.New("EndOfIncarnationIsAnEvent", Want{Size: 3, Timeout: longTimeout}, (*job).incarnationEnds),
		kittest.New("DisconnectReachesIncarnation", Want{Size: 2, Timeout: longTimeout}, (*job).disconnectReachesIncarnation),
		kittest.New("BrokenCommunicatorIsReportedOnce", Want{Size: 4, Timeout: longTimeout}, (*job).brokenIsReportedOnce),
		kittest.New("NoteReachesItsIncarnation", Want{Size: 2, Timeout: longTimeout}, (*job).noteReachesIncarnation),
		kittest.New("CloseWhileEventsArriveIsNoFailure", Want{Size: 2, Timeout: longTimeout}, (*job).closeWhileEventsArrive),
		kittest.New("CloseIsNoFailure", Want{Size: 3, Timeout: shortTimeout, Needs: Names | Subsets}, (*job).closeIsNoFailure),
		kittest.New("CanceledContextWithdraws", Want{Size: 2, Timeout: longTimeout, Needs: Withdrawal}, (*job).cancelWithdraws),
		kittest.New("CanceledMemberIsMissing", Want{Size: 2, Timeout: shortTimeout, Needs: Withdrawal}, (*job).canceledMemberIsMissing),
		kittest.New("EndedContextSendsNothing", Want{Size: 2, Timeout: longTimeout}, (*job).endedContextSendsNothing),
		kittest.New("CloseDuringWait", Want{Size: 2, Timeout: longTimeout, Needs: Withdrawal}, (*job).closeDuringWait),
		kittest.New("UseAfterClose", Want{Size: 1, Timeout: longTimeout}, (*job).useAfterClose),
	}
}

// A waitingCall is a call of a client that waits for process other.
type waitingCall struct {
	name string
	call func(ctx context.Context, c bootstrap.Client, j *job, other int) error
}

// waitingCalls are the waiting calls of every client.
var waitingCalls = []waitingCall{
	{"fence", func(ctx context.Context, c bootstrap.Client, j *job, _ int) error {
		return c.Fence(ctx, j.world(), "t")
	}},
	{"construct", func(ctx context.Context, c bootstrap.Client, j *job, _ int) error {
		_, err := c.Construct(ctx, j.world(), "t", []byte("old"))
		return err
	}},
	{"get", func(ctx context.Context, c bootstrap.Client, j *job, other int) error {
		_, err := c.Get(ctx, j.group(other)[0], "never")
		return err
	}},
}

// shortContext returns a context that ends with errCause before the clients' deadline.
func (j *job) shortContext() (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(j.Context(), shortTimeout/4, errCause)
}

func (j *job) deadlineNamesMissing() {
	here, absent := []int{0, 2}, j.group(1, 3, 4)
	for _, again := range []string{"first", "again"} {
		j.Each(len(here), func(i int) {
			for _, w := range waitingCalls[:2] {
				err := w.call(j.Context(), j.Clients[here[i]], j, 0)
				j.Is(again+" "+w.name, err, framework.ErrTimeout)
				j.checkMissing(again+" "+w.name, err, absent, nil)
			}
		})
	}
	// The present members can still enter a fence.
	j.Each(len(here), func(i int) { j.fence(here[i], "t", here...) })
}

// Calls have the deadline of their context's WithTimeout, and name the missing members.
func (j *job) callDeadlineNamesMissing() {
	here, absent := []int{0, 2, 4}, j.group(1, 3)
	j.Each(len(here), func(i int) {
		for _, w := range waitingCalls[:2] {
			err := w.call(bootstrap.WithTimeout(j.Context(), shortTimeout), j.Clients[here[i]], j, 0)
			j.Is(w.name, err, framework.ErrTimeout)
			j.checkMissing(w.name, err, absent, nil)
		}
	})
	j.Each(len(here), func(i int) { j.fence(here[i], "t", here...) })
}

func (j *job) lateMemberIsMissing() {
	for r := range 2 {
		j.checkMissing("fence", j.Clients[r].Fence(j.Context(), j.world(), "t"), j.group(1-r), nil)
	}
}

// needKill skips the case if no process can be killed.
func (j *job) needKill() {
	if j.Kill == nil {
		j.Skipf("the kit can't kill a process of this implementation")
	}
}

func (j *job) deathEndsWaits() {
	j.needKill()
	const victim = 3
	dead, live := j.group(victim), j.ranks()[:victim]
	j.put(victim, "last", "words")
	j.fenceAll("start")
	killed := j.Go(func() { j.Check(j.Kill(victim)) })
	j.Each(victim, func(r int) {
		for round := range 2 { // The first round may wait when the death is reported, and the second one follows it.
			for _, w := range waitingCalls {
				what := fmt.Sprintf("rank %d: round %d, %s", r, round, w.name)
				err := w.call(j.Context(), j.Clients[r], j, victim)
				j.Is(what, err, framework.ErrProcFailed)
				j.checkMissing(what, err, nil, dead)
			}
		}
		j.get(r, victim, "last", "words")
		j.fence(r, "f", live...) // The others continue.
	})
	killed()
}

func (j *job) deathIsAnEvent() {
	j.needKill()
	dead := j.group(2)[0]
	const incarnation = 77
	optional[bootstrap.EventSource](j, 2).BeginIncarnation(incarnation - 1)
	optional[bootstrap.EventSource](j, 2).BeginIncarnation(incarnation)
	j.fenceAll("begun")
	// A launcher may report the death before members add the incarnation.
	expect := func(ch <-chan bootstrap.Event) {
		for named := false; !named; {
			select {
			case e := <-ch:
				if named = e.Nonce == incarnation; e.Kind != bootstrap.PeerFailed || e.Proc != dead || e.Reason == "" || !named && e.Nonce != 0 {
					j.Fatalf("event %+v, want the death of the last incarnation of %s with a reason", e, dead)
				}
			case <-j.Context().Done():
				j.Fatalf("no event reports the death of the last incarnation of %s", dead)
			}
		}
	}
	early := j.collectEvents(0)
	j.Check(j.Kill(2))
	expect(early)
	// A later callback receives the death too.
	expect(j.collectEvents(1))
	expect(j.collectEvents(0))
	late := j.collectEvents(1)
	expect(late)
	j.fence(0, "t", 0)
	j.checkNoEvent(late)
}

// collectEvents returns a client's events in a channel with some capacity.
func (j *job) collectEvents(rank int) <-chan bootstrap.Event {
	ch := make(chan bootstrap.Event, 16)
	optional[bootstrap.EventSource](j, rank).OnEvent(func(e bootstrap.Event) { ch <- e })
	return ch
}

// checkNext fails unless the next event is the given one.
func (j *job) checkNext(ch <-chan bootstrap.Event, want bootstrap.Event) {
	select {
	case e := <-ch:
		if e != want {
			j.Fatalf("event %+v, want %+v", e, want)
		}
	case <-j.Context().Done():
		j.Fatalf("no event %+v", want)
	}
}

// incarnationEnds checks the end of an incarnation by EndIncarnation and by Close.
func (j *job) incarnationEnds() {
	leaver := optional[bootstrap.EventSource](j, 2)
	leaver.BeginIncarnation(7)
	j.fenceAll("begun")
	event := bootstrap.Event{Kind: bootstrap.PeerLeft, Proc: j.group(2)[0], Nonce: 7}
	near, far := j.collectEvents(0), j.collectEvents(1)
	leaver.EndIncarnation()
	leaver.EndIncarnation() // It has no effect.
	j.checkNext(near, event)
	j.checkNext(far, event)
	leaver.BeginIncarnation(8)
	leaver.EndIncarnation()
	leaver.BeginIncarnation(9)
	j.fenceAll("again")
	event.Nonce = 8
	j.checkNext(near, event)
	j.checkNext(far, event)
	j.Check(j.Clients[2].Close())
	event.Nonce = 9
	j.checkNext(near, event)
	j.checkNext(far, event)
}

// disconnectReachesIncarnation checks that only the named incarnation receives the event.
func (j *job) disconnectReachesIncarnation() {
	from, to := optional[bootstrap.EventSource](j, 0), optional[bootstrap.EventSource](j, 1)
	from.BeginIncarnation(5)
	to.BeginIncarnation(6)
	j.fenceAll("begun")
	news := j.collectEvents(1)
	from.Disconnect(j.group(1)[0], 99, "another incarnation")
	from.Disconnect(j.group(1)[0], 6, "no way")
	j.checkNext(news, bootstrap.Event{Kind: bootstrap.PeerUnreachable, Proc: j.group(0)[0], Nonce: 5, Reason: "no way"})
}

// brokenIsReportedOnce checks that the members receive one event, although all of them report the
// communicator.
func (j *job) brokenIsReportedOnce() {
	first, second := optional[bootstrap.EventSource](j, 0), optional[bootstrap.EventSource](j, 1)
	first.BeginIncarnation(5)
	second.BeginIncarnation(6)
	j.fenceAll("begun")
	members := j.group(2, 0, 1)
	at := []<-chan bootstrap.Event{j.collectEvents(0), j.collectEvents(1), j.collectEvents(2), j.collectEvents(3)}
	id, other := cid.Extended{Base: 7, Sub: 1 << 48}, cid.Extended{Base: 7}
	broken := bootstrap.Event{Kind: bootstrap.CommBroken, Proc: j.group(0)[0], Nonce: 5, Comm: id, Reason: "no way"}
	first.ReportBroken(id, members, "no way")
	j.checkNext(at[1], broken)
	j.checkNext(at[2], broken)
	second.ReportBroken(id, members, "I have heard")
	second.ReportBroken(other, members, "another one")
	broken = bootstrap.Event{Kind: bootstrap.CommBroken, Proc: j.group(1)[0], Nonce: 6, Comm: other, Reason: "another one"}
	j.checkNext(at[0], broken)
	j.checkNext(at[2], broken)
	j.fenceAll("told")
	for _, ch := range at {
		j.checkNoEvent(ch)
	}
}

// closeWhileEventsArrive closes a client with unread events.
func (j *job) closeWhileEventsArrive() {
	from, to := optional[bootstrap.EventSource](j, 0), optional[bootstrap.EventSource](j, 1)
	to.BeginIncarnation(6)
	j.fenceAll("begun")
	events := j.collectEvents(0)
	var closed atomic.Bool
	telling := j.Go(func() {
		for !closed.Load() {
			from.Disconnect(j.group(1)[0], 6, strings.Repeat("no way ", 100))
		}
	})
	time.Sleep(shortTimeout / 50)
	to.EndIncarnation() // The server reads it after its writes have failed.
	j.Check(j.Clients[1].Close())
	closed.Store(true)
	telling()
	j.checkNext(events, bootstrap.Event{Kind: bootstrap.PeerLeft, Proc: j.group(1)[0], Nonce: 6})
}

func (j *job) checkNoEvent(ch <-chan bootstrap.Event) {
	select {
	case e := <-ch:
		j.Fatalf("an extra event: %+v", e)
	default:
	}
}

// closeIsNoFailure checks that a process without a client is absent and not failed.
func (j *job) closeIsNoFailure() {
	events := make(chan bootstrap.Event, 16)
	if src, ok := framework.As[bootstrap.EventSource](j.Clients[0]); ok {
		src.OnEvent(func(e bootstrap.Event) { events <- e })
	}
	j.put(1, "k", "stays")
	j.fenceAll("t")
	j.Check(j.Clients[1].Close())
	j.checkMissing("fence", j.Clients[0].Fence(j.Context(), j.group(0, 1), "t"), j.group(1), nil)
	j.get(0, 1, "k", "stays")
	j.checkNoEvent(events)
}

// cancelWithdraws checks that both processes can use the tag of a canceled call, which leaves
// nothing behind.
func (j *job) cancelWithdraws() {
	for _, w := range waitingCalls {
		for _, delay := range []time.Duration{0, time.Millisecond} {
			ctx, cancel := context.WithCancelCause(j.Context())
			t := time.AfterFunc(delay, func() { cancel(errCause) })
			err := w.call(ctx, j.Clients[0], j, 1)
			t.Stop()
			cancel(nil)
			j.Is(w.name, err, errCause)
			if errors.Is(err, framework.ErrTimeout) {
				j.Fatalf("%s: %v is a timeout too", w.name, err)
			}
		}
	}
	var seen ids
	j.onAllRanks(func(r int) {
		j.fence(r, "t", 0, 1)
		j.construct(r, []int{0, 1}, "t", &seen, "new")
	})
}

func (j *job) canceledMemberIsMissing() {
	ctx, cancel := j.shortContext()
	defer cancel()
	j.Is("fence", j.Clients[0].Fence(ctx, j.world(), "t"), errCause)
	j.checkMissing("fence", j.Clients[1].Fence(j.Context(), j.world(), "t"), j.group(0), nil)
}

func (j *job) endedContextSendsNothing() {
	ctx, cancel := context.WithCancelCause(j.Context())
	cancel(errCause)
	j.Is("put", j.Clients[0].Put(ctx, "k", nil), errCause)
	for _, w := range waitingCalls {
		j.Is(w.name, w.call(ctx, j.Clients[0], j, 0), errCause)
	}
	j.fenceAll("t")
}

func (j *job) closeDuringWait() {
	begun := make(chan struct{}, len(waitingCalls))
	closed := j.Go(func() {
		for range waitingCalls {
			<-begun
		}
		j.Check(j.Clients[0].Close())
	})
	j.Each(len(waitingCalls), func(i int) {
		begun <- struct{}{}
		j.Is(waitingCalls[i].name, waitingCalls[i].call(j.Context(), j.Clients[0], j, 1), framework.ErrClosed)
	})
	closed()
}

func (j *job) useAfterClose() {
	c, ctx, g := j.Clients[0], j.Context(), j.world()
	j.Check(c.Close())
	j.Is("put", c.Put(ctx, "k", nil), framework.ErrClosed)
	for _, w := range waitingCalls {
		j.Is(w.name, w.call(ctx, c, j, 0), framework.ErrClosed)
	}
	j.Is("second close", c.Close(), framework.ErrClosed)
	if d, ok := framework.As[bootstrap.Directory](c); ok {
		_, _, err := d.Lookup(ctx, "n", true)
		j.Is("publish", d.Publish(ctx, "n", nil), framework.ErrClosed)
		j.Is("lookup", err, framework.ErrClosed)
	}
	if p, ok := framework.As[bootstrap.PsetSource](c); ok {
		_, err1 := p.Psets(ctx)
		_, err2 := p.Pset(ctx, "ocean")
		j.Is("psets", err1, framework.ErrClosed)
		j.Is("pset", err2, framework.ErrClosed)
	}
	if id := c.Identity(); id.Proc != g[0] {
		j.Fatalf("identity changed to %v", id.Proc)
	}
}
