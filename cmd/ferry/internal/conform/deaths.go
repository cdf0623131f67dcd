package conform

import (
	"errors"
	"os"
	"slices"
	"syscall"

	"github.com/ferrympi/ferry/mpi"
)

// deathCases are the fatal cases. The last rank of the world dies, and after each of them, the suite continues over a
// Shrink of its world.
func deathCases() []Case {
	cases := []Case{
		of("ft/death of a rank ends operations with it", ulfm, 2, (*env).deathOfPeer),
		of("ft/death of a rank suspends receives from any source", ulfm, 2, (*env).deathOfAnySource),
		of("ft/death of a rank that others wait for in agree", ulfm, 2, (*env).deathInAgree),
		of("ft/death of a rank that others wait for in shrink", ulfm, 2, (*env).deathInShrink),
	}
	for i := range cases {
		cases[i].KillsRank, cases[i].IsOfProcesses = true, true
	}
	return cases
}

// Kill ends this process without a goodbye.
func Kill() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // A process may always kill itself.
	select {}
}

// victim is the rank that dies.
func (e *env) victim() int { return e.c.Size() - 1 }

func (e *env) isVictim() bool { return e.c.Rank() == e.victim() }

// isFailureOf checks an error that names these ranks as failed.
func (e *env) isFailureOf(what string, err error, ranks ...int) {
	var failed *mpi.ProcFailedError
	e.must(errors.Is(err, mpi.ErrProcFailed) && errors.As(err, &failed) && slices.Equal(failed.Ranks, ranks), "%s: %v, want a failure of %v", what, err, ranks)
}

// reversed returns a communicator with the victim as rank 0, and rank r of the case as Size()-1-r.
func (e *env) reversed() *mpi.Comm { return need(e.c.Split(e.ctx, 0, -e.c.Rank()))(e) }

// survivors is a communicator of the ranks that do not die.
func (e *env) survivors() *mpi.Comm {
	color := 0
	if e.isVictim() {
		color = mpi.Undefined
	}
	c, err := e.c.Split(e.ctx, color, e.c.Rank())
	if !e.isVictim() {
		e.Check(err)
	}
	return c
}

// ready is the tag of the messages after which the victim dies.
const ready = 99

// dieWhenReady ends the victim after a message of each other rank.
func (e *env) dieWhenReady() {
	if !e.isVictim() {
		e.Check(e.c.Send(e.ctx, nil, e.victim(), ready))
		return
	}
	for from := range e.victim() {
		need(e.c.Recv(e.ctx, nil, from, ready))(e)
	}
	e.dieNow()
}

func (e *env) deathOfPeer() {
	d, rest, victim := e.reversed(), e.survivors(), e.victim()
	if e.isVictim() {
		e.dieWhenReady()
	}
	in := make([]byte, 8)
	pending := []mpi.Request{e.irecv(in, victim, 1), need(e.c.Issend(in, victim, 2))(e), need(e.c.Isend(pattern(1<<20, 0, 0), victim, 3))(e)}
	e.dieWhenReady()
	for i, r := range pending {
		_, err := r.Wait(e.ctx)
		if i == 2 && err == nil {
			continue // A send may be buffered.
		}
		e.isFailureOf("pending operation", err, victim)
	}
	_, err := e.c.Recv(e.ctx, in, victim, 1)
	e.isFailureOf("receive", err, victim)
	e.isFailureOf("send", e.c.Send(e.ctx, in, victim, 1), victim)
	_, err = e.irecv(in, victim, 1).Wait(e.ctx)
	e.isFailureOf("a receive that starts later", err, victim)

	e.must(slices.Equal(e.c.Failed(), []int{victim}) && slices.Equal(d.Failed(), []int{0}), "failed: %v, and of the reversed communicator %v", e.c.Failed(), d.Failed())
	e.must(e.c.AckFailed(0) == 0 && e.c.AckFailed(5) == 1 && e.c.AckFailed(0) == 1, "acknowledged: %d of 1", e.c.AckFailed(0))
	e.isFailureOf("barrier after an acknowledgment", mpi.Barrier(e.ctx, e.c), victim)

	// Others are intact.
	e.must(len(rest.Failed()) == 0, "failures among the survivors: %v", rest.Failed())
	to, from := (rest.Rank()+1)%rest.Size(), (rest.Rank()+rest.Size()-1)%rest.Size()
	e.status("message among the survivors", from, 4, 8)(e.c.Sendrecv(e.ctx, in, to, 4, in, from, 4))
	e.works(rest)
	e.Check(d.Close())
}

func (e *env) deathOfAnySource() {
	victim, rest := e.victim(), e.survivors()
	if e.isVictim() {
		e.dieWhenReady()
	}
	in := make([]byte, 8)
	r := e.irecv(in, mpi.AnySource, 1)
	e.dieWhenReady()
	_, err := r.Wait(e.ctx)
	e.Is("wait", err, mpi.ErrProcFailedPending)
	e.must(slices.Equal(e.c.Failed(), []int{victim}), "failed: %v", e.c.Failed())
	_, _, err = r.Test()
	e.Is("test", err, mpi.ErrProcFailedPending)
	_, err = e.c.Recv(e.ctx, in, mpi.AnySource, 2)
	e.Is("receive", err, mpi.ErrProcFailedPending)
	_, err = e.c.Probe(e.ctx, mpi.AnySource, 2)
	e.Is("probe", err, mpi.ErrProcFailedPending)

	// The request is active, and a message completes it, before or after the acknowledgment.
	e.Check(mpi.Barrier(e.ctx, rest))
	if e.c.Rank()%2 == 0 {
		e.must(e.c.AckFailed(1) == 1, "a failure is not acknowledged")
	}
	to, from := (rest.Rank()+1)%rest.Size(), (rest.Rank()+rest.Size()-1)%rest.Size()
	if rest.Size() > 1 {
		e.Check(e.c.Send(e.ctx, pattern(8, e.c.Rank(), 0), to, 1), mpi.Barrier(e.ctx, rest))
		for err = mpi.ErrProcFailedPending; errors.Is(err, mpi.ErrProcFailedPending); {
			var st mpi.Status
			if st, err = r.Wait(e.ctx); err == nil {
				e.must(st.Source == from, "a message of rank %d, want one of %d", st.Source, from)
			}
		}
		e.Check(err)
		e.Same("message", in, pattern(8, from, 0))
	} else {
		_, err = r.Wait(e.ctx)
		e.isFailureOf("receive when no member is left", err, victim)
	}
	e.Check(rest.Close())
}

func (e *env) deathInAgree() {
	d, rest := e.reversed(), e.survivors()
	if e.isVictim() {
		e.dieWhenReady()
	}
	e.dieWhenReady()
	agree := func(what string, flags, want uint64, failed ...int) {
		got, err := d.Agree(e.ctx, flags)
		e.must(got == want, "%s: %#x, want %#x", what, got, want)
		if len(failed) > 0 {
			e.isFailureOf(what, err, failed...)
		} else {
			e.Check(err)
		}
	}
	agree("agree after a failure", 6, 6, 0)
	e.must(slices.Equal(d.Failed(), []int{0}), "failed: %v", d.Failed())
	agree("agree again", 3, 3, 0)
	if rest.Size() > 1 {
		if e.c.Rank() == 0 {
			d.AckFailed(1)
		}
		agree("agree after an acknowledgment in one member", 5, 5, 0)
	}
	e.must(d.AckFailed(1) == 1, "a failure is not acknowledged")
	agree("agree after an acknowledgment in all members", 9, 9)
	e.Check(d.Revoke())
	agree("agree after that, revoked", 9, 9)
	e.Check(rest.Close(), d.Close())
}

func (e *env) deathInShrink() {
	d, rest := e.reversed(), e.survivors()
	if e.isVictim() {
		e.dieWhenReady()
	}
	e.dieWhenReady()
	err := mpi.Barrier(e.ctx, d)
	e.must(errors.Is(err, mpi.ErrProcFailed) || errors.Is(err, mpi.ErrRevoked), "barrier with a dead member: %v", err)
	e.Check(d.Revoke())
	for range 3 {
		e.shrinks(d, except(d, 0)...)
	}
	next := need(e.c.Shrink(e.ctx))(e)
	e.in("members", next.Group(), e.c.Group(), upTo(e.victim())...)
	e.must(next.Rank() == e.c.Rank(), "rank %d has become %d", e.c.Rank(), next.Rank())
	e.agrees(next, 1, 1)
	e.works(next)
	e.Check(rest.Close(), d.Close())
}
