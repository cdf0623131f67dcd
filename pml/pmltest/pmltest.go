package pmltest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/pml"
)

// Policies are the ways in which members come to know each other's ids. The kit
// runs every case with each.
var Policies = []cid.Policy{cid.PolicyAgree, cid.PolicyGather, cid.PolicyLazy}

// claims are those of the contract, with the number of processes that each needs.
type claims = []kittest.Claim[int, *fixture]

// fixture is what a case works with: a world, and a communicator of all.
type fixture struct {
	*kittest.T
	*World
	policy cid.Policy
	comms  []pml.Comm // by rank
}

// Cases returns the claims of the contract, to be made of a stack.
func Cases(stack Stack, policy cid.Policy) kittest.Cases {
	all := slices.Concat(matchCases(), bufferCases(), cancelCases(), commCases(), failureCases(), requestCases(), randomCases())
	return kittest.Bind(all, func(t *kittest.T, size int) *fixture {
		w, err := NewWorld(stack, size)
		t.Check(err)
		t.Cleanup(w.Close)
		procs := slices.Clone(w.Procs)
		t.OnHang(func() (all string) {
			for _, p := range procs {
				all += fmt.Sprintf("rank %d: %+v\n", p.Rank, p.Module.Inspect())
			}
			return all
		})
		comms, err := w.Comm(policy)
		t.Check(err)
		return &fixture{t, w, policy, comms}
	})
}

// Run runs every case with the given policies as subtests.
func Run(t *testing.T, stack Stack, policies ...cid.Policy) {
	t.Helper()
	for _, policy := range policies {
		t.Run(policy.String(), Cases(stack, policy).Run)
	}
}

// until waits until cond holds, while the processes' keepers progress.
func until(ctx context.Context, what string, cond func() bool) error {
	for !cond() {
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %w", what, context.Cause(ctx))
		}
		runtime.Gosched()
	}
	return nil
}

// data makes the contents of a message.
func data(seed, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(seed*31 + i*7 + i>>8*3 + 1)
	}
	return b
}

func buffer(b []byte) pml.Buffer { return pml.Buffer{Bytes: b} }

const p2p = pml.PointToPoint

// send is a blocking standard send of the user's plane.
func send(ctx context.Context, c pml.Comm, dst, tag int, b []byte) error {
	if err := c.Send(ctx, buffer(b), dst, tag, p2p, pml.Standard); err != nil {
		return fmt.Errorf("send of %d bytes to %d with tag %d: %w", len(b), dst, tag, err)
	}
	return nil
}

// want receives and compares: source, tag, length and contents.
func want(ctx context.Context, c pml.Comm, src, tag int, b []byte, from, with int) error {
	got := make([]byte, len(b))
	st, err := c.Recv(ctx, buffer(got), src, tag, p2p)
	if err != nil {
		return fmt.Errorf("receive from %d with tag %d: %w", src, tag, err)
	}
	return compare(st, got, b, from, with)
}

func compare(st pml.Status, got, b []byte, from, with int) error {
	if st.Source != from || st.Tag != with || st.Bytes != len(b) || st.Canceled {
		return fmt.Errorf("got %+v, want %d bytes from %d with tag %d", st, len(b), from, with)
	}
	if !bytes.Equal(got, b) {
		for i := range got {
			if got[i] != b[i] {
				return fmt.Errorf("message of %d bytes from %d with tag %d differs at byte %d: %#x, want %#x", len(b), from, with, i, got[i], b[i])
			}
		}
	}
	return nil
}

// pending is a request and its handle.
type pending struct {
	r   *pml.Request
	gen uint32
}

// started wraps what Isend and Irecv return.
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

// networked reports whether a network matches. Then a send that is on its way can't
// be withdrawn, a network holds any number of messages, and those for a
// communicator that is not there yet are in it, or still with their sender.
func (w *World) networked() bool {
	return w.stack.MTL != nil && (w.stack.Node == nil || w.stack.Nodes > 1)
}

// completes receives the message of a send whose context has ended, unless err says
// that it was withdrawn. It may not have been possible to withdraw it: then completes
// waits for its end. Or a network had taken it before, however long it is.
func completes(ctx context.Context, err error, receive func() error) error {
	var p *pml.PendingError
	if err == nil {
		return receive()
	}
	if !errors.As(err, &p) {
		return err
	}
	if !errors.Is(err, errEnough) {
		return fmt.Errorf("%w, want the context's cause in it", err)
	}
	gen := p.Request.Generation()
	if err := receive(); err != nil {
		return fmt.Errorf("the message of a send that can't be withdrawn: %w", err)
	}
	if st, err := p.Request.Wait(ctx, gen); err != nil || st.Canceled {
		return fmt.Errorf("a send that can't be withdrawn: %+v %w", st, err)
	}
	return nil
}

// unexpected counts the messages that wait at a rank.
func (f *fixture) unexpected(rank int) (n int) {
	for _, c := range f.Procs[rank].Module.Inspect().Comms {
		n += len(c.Unexpected)
	}
	return n
}

// sends counts those of a rank that are in the given state.
func (f *fixture) sends(rank int, state string) (n int) {
	for _, c := range f.Procs[rank].Module.Inspect().Comms {
		for _, s := range c.Sends {
			if s.State == state {
				n++
			}
		}
	}
	return n
}

// limits are the sizes at which a stack changes its ways: where a frame ends,
// where the rings are full.
func (f *fixture) limits() []int {
	var all []int
	for _, b := range f.Procs[0].btls {
		c := b.Caps()
		all = append(all, c.EagerLimit, c.FrameLimit, 4*c.FrameLimit)
	}
	if f.networked() {
		all = append(all, f.Procs[0].mtl.Caps().Inject)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// meet is a barrier of two ranks, each of which calls it for the other.
func meet(ctx context.Context, c pml.Comm, other int) error {
	r, err := c.Irecv(pml.Buffer{}, other, 9999, pml.Control)
	if err != nil {
		return err
	}
	gen := r.Generation()
	if err := c.Send(ctx, pml.Buffer{}, other, 9999, pml.Control, pml.Standard); err != nil {
		return err
	}
	_, err = r.Wait(ctx, gen)
	return err
}
