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

func faultCases() claims {
	return claims{
		kittest.New("DeadlineNamesTheMissing", Want{Size: 5, Timeout: short, Needs: Names | Subsets}, (*job).deadlineNames),
		kittest.New("DeadlineOfACallNamesTheMissing", Want{Size: 5, Timeout: long, Needs: Names | Subsets}, (*job).callDeadlineNames),
		kittest.New("LateMemberDoesNotJoinWhatFailed", Want{Size: 2, Timeout: short, Needs: Names | Withdrawal}, (*job).lateMember),
		kittest.New("DeathEndsWaits", Want{Size: 4, Timeout: long, Needs: Deaths | Subsets}, (*job).deathEndsWaits),
		kittest.New("DeathIsAnEvent", Want{Size: 3, Timeout: long}, (*job).deathIsAnEvent),
		kittest.New("LifeThatEndsIsAnEvent", Want{Size: 3, Timeout: long}, (*job).lifeEnds),
		kittest.New("LifeThatIsGivenUpHearsOfIt", Want{Size: 2, Timeout: long}, (*job).givenUp),
		kittest.New("BrokenCommunicatorIsToldOnceToItsOtherMembers", Want{Size: 4, Timeout: long}, (*job).brokenOnce),
		kittest.New("NoteReachesTheIncarnationThatItNames", Want{Size: 2, Timeout: long}, (*job).notes),
		kittest.New("CloseWhileNewsComesIsNoDeath", Want{Size: 2, Timeout: long}, (*job).closeAmongNews),
		kittest.New("CloseIsNoDeath", Want{Size: 3, Timeout: short, Needs: Names | Subsets}, (*job).closeIsNoDeath),
		kittest.New("CanceledContextWithdraws", Want{Size: 2, Timeout: long, Needs: Withdrawal}, (*job).cancelWithdraws),
		kittest.New("CanceledMemberIsMissing", Want{Size: 2, Timeout: short, Needs: Withdrawal}, (*job).canceledIsMissing),
		kittest.New("EndedContextSendsNothing", Want{Size: 2, Timeout: long}, (*job).endedContext),
		kittest.New("CloseDuringWait", Want{Size: 2, Timeout: long, Needs: Withdrawal}, (*job).closeDuringWait),
		kittest.New("UseAfterClose", Want{Size: 1, Timeout: long}, (*job).useAfterClose),
	}
}

// A wait is a call of a client that waits for a process other.
type wait struct {
	name string
	call func(ctx context.Context, c bootstrap.Client, j *job, other int) error
}

// waits are those that every client has.
var waits = []wait{
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

// briefly returns a context that ends with errCause before the clients' deadline.
func (j *job) briefly() (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(j.Context(), short/4, errCause)
}

func (j *job) deadlineNames() {
	here, gone := []int{0, 2}, j.group(1, 3, 4)
	for _, again := range []string{"first", "again"} {
		j.Each(len(here), func(i int) {
			for _, w := range waits[:2] {
				err := w.call(j.Context(), j.Clients[here[i]], j, 0)
				j.Is(again+" "+w.name, err, framework.ErrTimeout)
				j.missing(again+" "+w.name, err, gone, nil)
			}
		})
	}
	// Those who are there can still meet.
	j.Each(len(here), func(i int) { j.fence(here[i], "t", here...) })
}

// Calls have the deadline of their context's WithTimeout, and name the members that are missing.
func (j *job) callDeadlineNames() {
	here, gone := []int{0, 2, 4}, j.group(1, 3)
	j.Each(len(here), func(i int) {
		for _, w := range waits[:2] {
			err := w.call(bootstrap.WithTimeout(j.Context(), short), j.Clients[here[i]], j, 0)
			j.Is(w.name, err, framework.ErrTimeout)
			j.missing(w.name, err, gone, nil)
		}
	})
	j.Each(len(here), func(i int) { j.fence(here[i], "t", here...) })
}

func (j *job) lateMember() {
	for r := range 2 {
		j.missing("fence", j.Clients[r].Fence(j.Context(), j.world(), "t"), j.group(1-r), nil)
	}
}

// mortal skips the case when the job can't lose a process.
func (j *job) mortal() {
	if j.Kill == nil {
		j.Skipf("the kit can't kill a process of this implementation")
	}
}

func (j *job) deathEndsWaits() {
	j.mortal()
	const victim = 3
	dead, live := j.group(victim), j.ranks()[:victim]
	j.put(victim, "last", "words")
	j.meet("start")
	killed := j.Go(func() { j.Check(j.Kill(victim)) })
	j.Each(victim, func(r int) {
		for round := range 2 { // the first may wait when the death comes; the second finds it known
			for _, w := range waits {
				what := fmt.Sprintf("rank %d: round %d, %s", r, round, w.name)
				err := w.call(j.Context(), j.Clients[r], j, victim)
				j.Is(what, err, framework.ErrProcFailed)
				j.missing(what, err, nil, dead)
			}
		}
		j.get(r, victim, "last", "words")
		j.fence(r, "f", live...) // the living go on
	})
	killed()
}

func (j *job) deathIsAnEvent() {
	j.mortal()
	dead := j.group(2)[0]
	const life = 77
	ability[bootstrap.EventSource](j, 2).Begin(life - 1)
	ability[bootstrap.EventSource](j, 2).Begin(life)
	j.meet("begun")
	// A launcher may report the death before others have said which life it was.
	expect := func(ch <-chan bootstrap.Event) {
		for named := false; !named; {
			select {
			case e := <-ch:
				if named = e.Nonce == life; e.Kind != bootstrap.ProcDied || e.Proc != dead || e.Reason == "" || !named && e.Nonce != 0 {
					j.Fatalf("event %+v, want the death of the last life of %s with a reason", e, dead)
				}
			case <-j.Context().Done():
				j.Fatalf("no event reports the death of the last life of %s", dead)
			}
		}
	}
	early := j.listen(0)
	j.Check(j.Kill(2))
	expect(early)
	// Who begins to listen now hears of it too, and so does a second listener.
	expect(j.listen(1))
	expect(j.listen(0))
	late := j.listen(1)
	expect(late)
	j.fence(0, "t", 0)
	j.noEvent(late)
}

// listen returns a client's events, of which there is room for some.
func (j *job) listen(rank int) <-chan bootstrap.Event {
	ch := make(chan bootstrap.Event, 16)
	ability[bootstrap.EventSource](j, rank).OnEvent(func(e bootstrap.Event) { ch <- e })
	return ch
}

// next fails unless the next event is the given one.
func (j *job) next(ch <-chan bootstrap.Event, want bootstrap.Event) {
	select {
	case e := <-ch:
		if e != want {
			j.Fatalf("event %+v, want %+v", e, want)
		}
	case <-j.Context().Done():
		j.Fatalf("no event %+v", want)
	}
}

// lifeEnds: by End, or with the client, and whatever comes next.
func (j *job) lifeEnds() {
	leaver := ability[bootstrap.EventSource](j, 2)
	leaver.Begin(7)
	j.meet("begun")
	event := bootstrap.Event{Kind: bootstrap.ProcLeft, Proc: j.group(2)[0], Nonce: 7}
	near, far := j.listen(0), j.listen(1)
	leaver.End()
	leaver.End() // nothing more to say
	j.next(near, event)
	j.next(far, event)
	leaver.Begin(8)
	leaver.End()
	leaver.Begin(9)
	j.meet("again")
	event.Nonce = 8
	j.next(near, event)
	j.next(far, event)
	j.Check(j.Clients[2].Close())
	event.Nonce = 9
	j.next(near, event)
	j.next(far, event)
}

// givenUp: only the life that was meant.
func (j *job) givenUp() {
	from, to := ability[bootstrap.EventSource](j, 0), ability[bootstrap.EventSource](j, 1)
	from.Begin(5)
	to.Begin(6)
	j.meet("begun")
	news := j.listen(1)
	from.GiveUp(j.group(1)[0], 99, "somebody else")
	from.GiveUp(j.group(1)[0], 6, "no way")
	j.next(news, bootstrap.Event{Kind: bootstrap.GivenUp, Proc: j.group(0)[0], Nonce: 5, Reason: "no way"})
}

// brokenOnce: all members come to know, and to say, that a communicator's collectives can't
// go on.
func (j *job) brokenOnce() {
	first, second := ability[bootstrap.EventSource](j, 0), ability[bootstrap.EventSource](j, 1)
	first.Begin(5)
	second.Begin(6)
	j.meet("begun")
	members := j.group(2, 0, 1)
	at := []<-chan bootstrap.Event{j.listen(0), j.listen(1), j.listen(2), j.listen(3)}
	id, other := cid.Extended{Base: 7, Sub: 1 << 48}, cid.Extended{Base: 7}
	broken := bootstrap.Event{Kind: bootstrap.Broken, Proc: j.group(0)[0], Nonce: 5, Comm: id, Reason: "no way"}
	first.Broke(id, members, "no way")
	j.next(at[1], broken)
	j.next(at[2], broken)
	second.Broke(id, members, "I have heard")
	second.Broke(other, members, "another one")
	broken = bootstrap.Event{Kind: bootstrap.Broken, Proc: j.group(1)[0], Nonce: 6, Comm: other, Reason: "another one"}
	j.next(at[0], broken)
	j.next(at[2], broken)
	j.meet("told")
	for _, ch := range at {
		j.noEvent(ch)
	}
}

// closeAmongNews: a client that closes leaves unread what is sent to it.
func (j *job) closeAmongNews() {
	from, to := ability[bootstrap.EventSource](j, 0), ability[bootstrap.EventSource](j, 1)
	to.Begin(6)
	j.meet("begun")
	events := j.listen(0)
	var closed atomic.Bool
	telling := j.Go(func() {
		for !closed.Load() {
			from.GiveUp(j.group(1)[0], 6, strings.Repeat("no way ", 100))
		}
	})
	time.Sleep(short / 50)
	to.End() // which the server reads after it could not write any more
	j.Check(j.Clients[1].Close())
	closed.Store(true)
	telling()
	j.next(events, bootstrap.Event{Kind: bootstrap.ProcLeft, Proc: j.group(1)[0], Nonce: 6})
}

func (j *job) noEvent(ch <-chan bootstrap.Event) {
	select {
	case e := <-ch:
		j.Fatalf("an extra event: %+v", e)
	default:
	}
}

// closeIsNoDeath: who closed is merely absent.
func (j *job) closeIsNoDeath() {
	events := make(chan bootstrap.Event, 16)
	if src, ok := framework.As[bootstrap.EventSource](j.Clients[0]); ok {
		src.OnEvent(func(e bootstrap.Event) { events <- e })
	}
	j.put(1, "k", "stays")
	j.meet("t")
	j.Check(j.Clients[1].Close())
	j.missing("fence", j.Clients[0].Fence(j.Context(), j.group(0, 1), "t"), j.group(1), nil)
	j.get(0, 1, "k", "stays")
	j.noEvent(events)
}

// cancelWithdraws: after a canceled call both sides can meet under the same
// tag, and the canceled call has left nothing behind.
func (j *job) cancelWithdraws() {
	for _, w := range waits {
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
	j.all(func(r int) {
		j.fence(r, "t", 0, 1)
		j.construct(r, []int{0, 1}, "t", &seen, "new")
	})
}

func (j *job) canceledIsMissing() {
	ctx, cancel := j.briefly()
	defer cancel()
	j.Is("fence", j.Clients[0].Fence(ctx, j.world(), "t"), errCause)
	j.missing("fence", j.Clients[1].Fence(j.Context(), j.world(), "t"), j.group(0), nil)
}

func (j *job) endedContext() {
	ctx, cancel := context.WithCancelCause(j.Context())
	cancel(errCause)
	j.Is("put", j.Clients[0].Put(ctx, "k", nil), errCause)
	for _, w := range waits {
		j.Is(w.name, w.call(ctx, j.Clients[0], j, 0), errCause)
	}
	j.meet("t")
}

func (j *job) closeDuringWait() {
	begun := make(chan struct{}, len(waits))
	closed := j.Go(func() {
		for range waits {
			<-begun
		}
		j.Check(j.Clients[0].Close())
	})
	j.Each(len(waits), func(i int) {
		begun <- struct{}{}
		j.Is(waits[i].name, waits[i].call(j.Context(), j.Clients[0], j, 1), framework.ErrClosed)
	})
	closed()
}

func (j *job) useAfterClose() {
	c, ctx, g := j.Clients[0], j.Context(), j.world()
	j.Check(c.Close())
	j.Is("put", c.Put(ctx, "k", nil), framework.ErrClosed)
	for _, w := range waits {
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
