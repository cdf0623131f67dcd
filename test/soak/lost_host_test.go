package soak

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"testing"
	"time"

	"github.com/ferrympi/ferry/internal/needs"
	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/test/nettest"
)

// The link between two hosts is cut, first for less than bootstrap.host_timeout, which has no
// effect, and then for longer. Each side gets the failure of all ranks of the other one within that
// time and a second. They remain failed after the link is restored.
func TestLostHost_LinkIsCut_SidesContinueAlone(t *testing.T) {
	needs.Time(t)
	if !*full {
		cutHostLink(t, 4, 5*time.Second)
		return
	}
	for _, timeout := range []time.Duration{5 * time.Second, 10 * time.Second, 30 * time.Second} {
		for _, n := range []int{2, 8} {
			t.Run(fmt.Sprint(n, " ranks, ", timeout), func(t *testing.T) { cutHostLink(t, n, timeout) })
		}
	}
}

// reportDelay is the time after bootstrap.host_timeout within which the failures are reported.
const reportDelay = time.Second

func cutHostLink(t *testing.T, n int, timeout time.Duration) {
	h := nettest.New(t)
	j := startMembers(t, n, 2, "lost-host", func(node int, cmd *exec.Cmd) error {
		return h.On(node, cmd.Start)
	}, fmt.Sprint("FERRY_BOOTSTRAP_HOST_TIMEOUT=", timeout))
	j.await("ready", n)

	h.Cut(0)
	time.Sleep(timeout * 7 / 10) // The outage is the subject of the test.
	h.Join(0)
	j.complete("healed")
	j.await("healed", n)

	h.Cut(0)
	cut := time.Now() // Both directions are cut now.
	var worst time.Duration
	for rank, at := range j.await("dead", n) {
		after := at.Sub(cut)
		worst = max(worst, after)
		if *full && after > timeout+reportDelay { // Smaller sizes are dominated by noise.
			t.Errorf("rank %d: all ranks of the other host dead after %v, want at most %v", rank, after, timeout+reportDelay)
		}
	}
	h.Join(0)
	j.complete("joined")
	linger := 2 * time.Second
	if *full {
		linger = timeout
	}
	time.Sleep(linger) // A connection, a keepalive or a retransmission would get through.
	j.complete("end")
	j.wait()
	t.Logf("%d ranks on 2 hosts, host_timeout %v: all ranks of the other host dead at most %v after the cut", n, timeout, worst.Round(time.Millisecond))
}

// lostHostRank is the program of the ranks.
func lostHostRank(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
	half := c.Size() / 2
	mine, far := 0, half
	if c.Rank() >= half {
		mine, far = half, 0
	}
	if err := errors.Join(mpi.Barrier(ctx, c), completeStep(c.Rank(), "ready", "")); err != nil {
		return err
	}
	for last := []bool{false}; !last[0]; {
		last[0] = c.Rank() == 0 && isComplete("healed")
		if err := errors.Join(mpi.Bcast(ctx, c, last, 0), barrierOf(ctx, c.Group())); err != nil {
			return fmt.Errorf("during an outage of less than the timeout: %w", err)
		}
	}
	if failed := c.Failed(); len(failed) > 0 {
		return fmt.Errorf("ranks %v failed in an outage of less than the timeout", failed)
	}
	if err := completeStep(c.Rank(), "healed", ""); err != nil {
		return err
	}
	_, err := c.Recv(ctx, nil, far+c.Rank()%half, 1)
	if !errors.Is(err, mpi.ErrProcFailed) {
		return fmt.Errorf("receive from the other host: %w", err)
	}
	for len(c.Failed()) < half && ctx.Err() == nil {
		time.Sleep(time.Millisecond) // Yields to the event.
	}
	if err := completeStep(c.Rank(), "dead", ""); err != nil {
		return err
	}
	for !isComplete("end") {
		for rank := far; rank < far+half; rank++ {
			if _, err := c.Recv(ctx, nil, rank, 1); !errors.Is(err, mpi.ErrProcFailed) {
				return fmt.Errorf("receive from rank %d, which is dead: %w", rank, err)
			}
		}
		time.Sleep(time.Millisecond)
	}
	if failed := c.Failed(); len(failed) != half {
		return fmt.Errorf("failed ranks are %v", failed)
	}
	g, err := c.Group().RangeIncl([]mpi.Range{{First: mine, Last: mine + half - 1, Stride: 1}})
	if err != nil {
		return err
	}
	return barrierOf(ctx, g)
}

// barrierOf creates a communicator, which needs the bootstrap of all members, for one barrier.
func barrierOf(ctx context.Context, g *mpi.Group) error {
	c, err := mpi.CommFromGroup(ctx, g, "barrier")
	if err != nil {
		return err
	}
	return errors.Join(mpi.Barrier(ctx, c), c.Close())
}
