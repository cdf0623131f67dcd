package pmltest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/pml"
)

// Policies are the id policies. The kit runs every case with each of
// them.
var Policies = []cid.Policy{cid.PolicyAgree, cid.PolicyGather, cid.PolicyLazy}

// claims are the cases, with the number of processes that each needs.
type claims = []kittest.Claim[int, *fixture]

// fixture is the environment of a case, with a world and a communicator of all processes.
type fixture struct {
	*kittest.T
	*World
	cidPolicy   cid.Policy
	commsByRank []pml.Comm
}

// Cases returns the cases of the contract for a stack.
func Cases(stack Stack, policy cid.Policy) kittest.Cases {
	all := slices.Concat(matchCases(), bufferCases(), cancelCases(), commCases(), unreceivedCases(), failureCases(), suspensionCases(), revocationCases(), requestCases(), startCases(), endpointCases(), randomCases())
	if stack.Ranks != nil {
		all = append(all, goroutineCases(stack.Ranks)...)
	}
	return bind(all, stack, policy)
}

// bind returns cases that run claims on a stack.
func bind(all claims, stack Stack, policy cid.Policy) kittest.Cases {
	return kittest.Bind(all, func(t *kittest.T, size int) *fixture {
		w, err := NewWorld(stack, size)
		t.Check(err)
		t.Cleanup(w.Close)
		procs := slices.Clone(w.Procs)
		t.OnHang(func() (all string) {
			for _, p := range procs {
				x, err := p.Module.Inspect(context.Background())
				all += fmt.Sprintf("rank %d: %+v %v\n", p.Rank, x, err)
			}
			return all
		})
		f := &fixture{T: t, World: w, cidPolicy: policy}
		f.commsByRank = f.comm()
		return f
	})
}

// Run runs every case with the given policies as subtests. With -short, it runs the last policy only.
func Run(t *testing.T, stack Stack, policies ...cid.Policy) {
	t.Helper()
	for i, policy := range policies {
		t.Run(policy.String(), func(t *testing.T) {
			if testing.Short() && i < len(policies)-1 {
				t.Skip("with -short a kit runs with one policy of communicator ids")
			}
			Cases(stack, policy).Run(t)
		})
	}
}

// data returns the contents of a message.
func data(seed, n int) []byte { return kittest.Payload(seed, n) }

func buffer(b []byte) pml.Buffer { return pml.Buffer{Bytes: b} }

const p2p = pml.PointToPoint

// pending is a request and its handle.
type pending struct {
	r   *pml.Request
	gen uint32
}

// started wraps the results of Isend and Irecv.
func started(r *pml.Request, err error) (pending, error) {
	if err != nil {
		return pending{}, err
	}
	return pending{r, r.Generation()}, nil
}

func isend(c pml.Comm, dst, tag int, b []byte, mode pml.Mode) (pending, error) {
	return started(c.Isend(buffer(b), dst, tag, p2p, mode))
}

func irecv(c pml.Comm, src, tag int, b []byte) (pending, error) {
	return started(c.Irecv(buffer(b), src, tag, p2p))
}

func (p pending) wait(ctx context.Context) (pml.Status, error) { return p.r.Wait(ctx, p.gen) }

// comm creates another communicator of all processes.
func (f *fixture) comm() []pml.Comm {
	comms, err := f.Comm(f.cidPolicy)
	f.Check(err)
	return comms
}

// each runs f concurrently for every rank of comms.
func (f *fixture) each(comms []pml.Comm, do func(rank int, c pml.Comm)) {
	f.Each(len(comms), func(rank int) { do(rank, comms[rank]) })
}

// Steps of cases, which end the case if they fail. Those with the prefix i start an operation. Messages are on
// the user's plane.

func (f *fixture) isend(c pml.Comm, dst, tag int, b []byte, mode pml.Mode) pending {
	p, err := isend(c, dst, tag, b, mode)
	f.Check(err)
	return p
}

func (f *fixture) irecv(c pml.Comm, src, tag int, b []byte) pending {
	p, err := irecv(c, src, tag, b)
	f.Check(err)
	return p
}

// wait waits for sends, which must succeed and not be canceled.
func (f *fixture) wait(all ...pending) {
	for _, p := range all {
		if st, err := p.wait(f.Context()); err != nil || st.Canceled {
			f.Fatalf("send: %+v %w", st, err)
		}
	}
}

// got waits for a receive into buf and compares source, tag, length and contents.
func (f *fixture) got(p pending, buf, b []byte, from, with int) {
	st, err := p.wait(f.Context())
	f.compare(st, err, buf, b, from, with)
}

func (f *fixture) compare(st pml.Status, err error, got, b []byte, from, with int) {
	if err != nil {
		f.Fatalf("receive from %d with tag %d: %w", from, with, err)
	}
	if st.Source != from || st.Tag != with || st.Bytes != len(b) || st.Canceled {
		f.Fatalf("got %+v, want %d bytes from %d with tag %d", st, len(b), from, with)
	}
	f.Same(fmt.Sprintf("message from %d with tag %d", from, with), got, b)
}

// send is a blocking standard send.
func (f *fixture) send(c pml.Comm, dst, tag int, b []byte) {
	if err := c.Send(f.Context(), buffer(b), dst, tag, p2p, pml.Standard); err != nil {
		f.Fatalf("send of %d bytes to %d with tag %d: %w", len(b), dst, tag, err)
	}
}

// want receives by src and tag the message that process from has sent with the tag with.
func (f *fixture) want(c pml.Comm, src, tag int, b []byte, from, with int) {
	got := make([]byte, len(b))
	st, err := c.Recv(f.Context(), buffer(got), src, tag, p2p)
	f.compare(st, err, got, b, from, with)
}

// meet is a barrier of two ranks. Each calls it with the rank of the other.
func (f *fixture) meet(c pml.Comm, other int) {
	p, err := started(c.Irecv(pml.Buffer{}, other, 9999, pml.Control))
	f.Check(err)
	f.Check(c.Send(f.Context(), pml.Buffer{}, other, 9999, pml.Control, pml.Standard))
	_, err = p.wait(f.Context())
	f.Check(err)
}

// connectAll exchanges messages between all ranks, so that all paths are open and ids are known.
func (f *fixture) connectAll(comms []pml.Comm) {
	f.each(comms, func(rank int, c pml.Comm) {
		for other := range comms {
			if other != rank {
				f.meet(c, other)
			}
		}
	})
}

// stopProgress keeps a process from making progress until release is called. A case also defers release.
func (f *fixture) stopProgress(rank int) (release func()) {
	p := f.Procs[rank]
	if p.host == nil {
		return f.lock(rank)
	}
	process := p.host.Engine
	process.Lock()
	p.Engine.Lock()
	return sync.OnceFunc(func() {
		p.Engine.ReleaseUnder()
		process.Unlock()
	})
}

// lock acquires the lock of a rank's engine.
func (f *fixture) lock(rank int) (release func()) {
	e := f.Procs[rank].Engine
	e.Lock()
	return sync.OnceFunc(e.Release)
}

var errEnough = errors.New("the test has had enough")

// limitedSend is a send that the case can end with errEnough.
type limitedSend struct {
	f         *fixture
	cancel    context.CancelCauseFunc
	waitEnded func()
	err       error
}

// limited starts a blocking send to rank 1.
func (f *fixture) limited(c pml.Comm, tag int, b []byte, mode pml.Mode) *limitedSend {
	ctx, cancel := context.WithCancelCause(f.Context())
	s := &limitedSend{f: f, cancel: cancel}
	s.waitEnded = f.Go(func() { s.err = c.Send(ctx, buffer(b), 1, tag, p2p, mode) })
	return s
}

// stop ends the send's context and returns its error.
func (s *limitedSend) stop() error {
	s.cancel(errEnough)
	s.waitEnded()
	return s.err
}

// receiveOrWithdrawn receives the message of a send whose context has ended, unless err means that it was
// withdrawn, and returns whether it was. If the send could not be withdrawn, it also waits for its completion. A
// network may have accepted a message of any length
// before.
func (f *fixture) receiveOrWithdrawn(err error, receive func()) (withdrawn bool) {
	var p *pml.PendingError
	if err == nil {
		receive()
		return false
	}
	f.Is("send whose context has ended", err, errEnough)
	if !errors.As(err, &p) {
		return true
	}
	rest := pending{p.Request, p.Request.Generation()}
	receive()
	f.wait(rest)
	return false
}

// caps returns the capabilities of the stack, which are equal in all processes.
func (w *World) caps() pml.Caps {
	i := slices.IndexFunc(w.Procs, func(p *Process) bool { return p != nil }) // Killed processes are nil.
	return w.Procs[i].Module.Caps()
}

// awaitArrival waits until an unreceived message has arrived.
func (f *fixture) awaitArrival(c pml.Comm, src, tag int) {
	_, err := c.Probe(f.Context(), src, tag, p2p)
	f.Check(err)
}

// hasNoMessage reports whether no message has arrived.
func (f *fixture) hasNoMessage(c pml.Comm) bool {
	_, found, err := c.Iprobe(pml.AnySource, pml.AnyTag, p2p)
	f.Check(err)
	return !found
}

// Inspect calls m.Inspect until the engine is not busy.
func Inspect(m pml.Module) pml.Inspection {
	for {
		if x, err := m.Inspect(context.Background()); err == nil {
			return x
		}
	}
}

func (f *fixture) inspection(rank int) pml.Inspection { return Inspect(f.Procs[rank].Module) }

// sends counts the sends of a rank in a state.
func (f *fixture) sends(rank int, state string) (n int) {
	for _, c := range f.inspection(rank).Comms {
		for _, s := range c.Sends {
			if s.State == state {
				n++
			}
		}
	}
	return n
}
