package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/bootstrap/local/localtest"
	"github.com/ferrympi/ferry/internal/needs"
	"github.com/ferrympi/ferry/mpi"
)

// Environment of ranks that lose their launcher.
const (
	envLost = "SOAK_LOST" // File that exists when the cut rank has ended, or when the launcher may exit.
)

// lossTimeout is bootstrap.timeout, the time for which a rank continues without its launcher.
const lossTimeout = time.Second

// The connection of a rank with its launcher is cut at a random moment. The others are notified of
// its failure. The rank itself gets no notification, so it disconnects the others after a timeout,
// and no operation waits longer.
func TestCut(t *testing.T) { cutRepeatedly(t, size(40, 2)) }

// TestCutOverNetwork is TestCut with matching in the network.
func TestCutOverNetwork(t *testing.T) {
	needs.Time(t)
	cutRepeatedly(t, size(40, 1), overNetwork(t)...)
}

func cutRepeatedly(t *testing.T, n int, env ...string) {
	t.Helper()
	var worst time.Duration
	for i := range n {
		dir := segments(t)
		r := localtest.RunJob(t, localtest.Job{Size: 3, Program: "cut", MayFail: true, Timeout: time.Minute, Env: append(env[:len(env):len(env)],
			"FERRY_BTL_SHM_DIR="+dir, fmt.Sprint(envRounds, "=", i), envLost+"="+filepath.Join(t.TempDir(), "lost"), fmt.Sprint("FERRY_BOOTSTRAP_TIMEOUT=", lossTimeout))})
		for rank, err := range r.Exit {
			if err != nil {
				t.Errorf("cut %d: rank %d: %v\n%s", i, rank, err, r.Output[rank])
			}
		}
		if left := files(t, dir); len(left) > 0 {
			t.Errorf("cut %d: left in %s: %v", i, dir, left)
		}
		after, _, _ := strings.Cut(r.Output[2], " ")
		if d, err := time.ParseDuration(after); err == nil {
			worst = max(worst, d)
		}
	}
	t.Logf("%d cuts: ErrTransport at most %v after each", n, worst)
}

// cutRank is the program of all ranks. Rank 2 is cut off.
func cutRank(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
	rng := rand.New(rand.NewPCG(uint64(rounds()), 0)) // The same numbers in all ranks.
	ended := os.Getenv(envLost)
	moment, failed := make(chan time.Time, 1), make(chan error, 1)
	if c.Rank() == 2 {
		go func() {
			time.Sleep(time.Duration(rand.IntN(30_000)) * time.Microsecond)
			moment <- time.Now()
			if n := shutDownLaunchers(); n != 1 {
				failed <- fmt.Errorf("cut %d connections with the launcher, want 1", n)
			}
		}()
	}
	var err error
	for round := 0; err == nil; round++ {
		err = exchangeAll(ctx, rng, c, round)
	}
	if c.Rank() < 2 {
		if !errors.Is(err, mpi.ErrProcFailed) && !errors.Is(err, mpi.ErrProcFailedPending) {
			return fmt.Errorf("want ErrProcFailed: %w", err)
		}
		// The end of a session must not release the rank that is cut off, so the others keep theirs
		// open.
		for i := 0; !exists(ended); i++ {
			b := []byte{byte(i)}
			if _, err := mpi.Sendrecv(ctx, c, b, 1-c.Rank(), i, b, 1-c.Rank(), i); err != nil {
				if exists(ended) { // The other one may have noticed first.
					break
				}
				return fmt.Errorf("the others: %w", err)
			}
		}
		return nil
	}
	select {
	case err := <-failed:
		return err
	default:
	}
	late := time.Since(<-moment)
	if err := os.WriteFile(ended, nil, 0o600); err != nil {
		return err
	}
	switch {
	case !errors.Is(err, mpi.ErrTransport):
		return fmt.Errorf("want ErrTransport: %w", err)
	case late > lossTimeout+promptLimit:
		return fmt.Errorf("%v after the cut: %w", late, err)
	}
	// New calls fail at once.
	if err := c.Send(ctx, make([]byte, 1<<20), 0, 0); !errors.Is(err, mpi.ErrTransport) {
		return fmt.Errorf("new send: %w", err)
	}
	fmt.Printf("%v until %v\n", late.Round(10*time.Microsecond), err)
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// exchangeAll is one exchange of rank 2 with each other rank, or of all.
func exchangeAll(ctx context.Context, rng *rand.Rand, c *mpi.Comm, tag int) error {
	form, n := rng.IntN(6), []int{8, 5000, 300_000}[rng.IntN(3)]
	switch form {
	case 0:
		return mpi.Barrier(ctx, c)
	case 1:
		return mpi.Allreduce(ctx, c, make([]int, 100), make([]int, 100), mpi.Sum[int]())
	}
	peers := []int{2}
	if c.Rank() == 2 {
		peers = []int{0, 1}
	}
	in, out := make([]byte, n), make([]byte, n)
	for _, peer := range peers {
		source := peer
		var err error
		switch form {
		case 2: // From any source.
			source = mpi.AnySource
			fallthrough
		case 3:
			_, err = c.Sendrecv(ctx, out, peer, tag, in, source, tag)
		case 4: // One after the other, acknowledged.
			if c.Rank() == 2 {
				err = c.Ssend(ctx, out, peer, tag)
			}
			if err == nil {
				_, err = c.Recv(ctx, in, peer, tag)
			}
			if err == nil && c.Rank() != 2 {
				err = c.Ssend(ctx, out, peer, tag)
			}
		default: // After a probe.
			var send mpi.Request
			if send, err = c.Isend(out, peer, tag); err != nil {
				return err
			}
			if _, err = c.Probe(ctx, peer, tag); err == nil {
				_, err = c.Recv(ctx, in, peer, tag)
			}
			_, sent := send.Wait(ctx)
			err = errors.Join(err, sent)
		}
		if err != nil {
			return fmt.Errorf("form %d: %w", form, err)
		}
	}
	return nil
}

// shutDownLaunchers shuts down this process's connections with launchers and returns their number.
func shutDownLaunchers() (n int) {
	fds, _ := filepath.Glob("/proc/self/fd/*")
	for _, path := range fds {
		fd, err := strconv.Atoi(filepath.Base(path))
		if err != nil {
			continue
		}
		peer, err := unix.Getpeername(fd)
		if err != nil {
			continue
		}
		if at, ok := peer.(*unix.SockaddrUnix); ok && filepath.Base(at.Name) == "bootstrap" && unix.Shutdown(fd, unix.SHUT_RDWR) == nil {
			n++
		}
	}
	return n
}

// The launcher exits at a random moment. Ranks that get no more notifications about each other end.
func TestCutLauncher_OnLossEnd_RanksEnd(t *testing.T) {
	loseLauncher(t, size(20, 1), lossTimeout, "FERRY_BOOTSTRAP_ON_LOSS=end")
}

// Ranks continue without the launcher for longer than the timeout that would end them with the
// other setting.
func TestCutLauncher_OnLossContinue_RanksContinue(t *testing.T) {
	loseLauncher(t, size(20, 1), 100*time.Millisecond, "FERRY_BOOTSTRAP_ON_LOSS=continue")
}

func loseLauncher(t *testing.T, n int, timeout time.Duration, env ...string) {
	t.Helper()
	for i := range n {
		dir, desert, begun := segments(t), make(chan struct{}), filepath.Join(t.TempDir(), "begun")
		go func() {
			defer close(desert)
			awaitCondition(t.Context(), t, func() bool { return exists(begun) })
			time.Sleep(time.Duration(rand.IntN(30_000)) * time.Microsecond)
		}()
		r := localtest.RunJob(t, localtest.Job{Size: 3, Program: "orphan", Timeout: time.Minute, LoseServer: desert, Env: append(env,
			"FERRY_BTL_SHM_DIR="+dir, envLost+"="+begun, fmt.Sprint("FERRY_BOOTSTRAP_TIMEOUT=", timeout))})
		if left := files(t, dir); len(left) > 0 {
			t.Errorf("loss %d: left in %s: %v", i, dir, left)
		}
		t.Logf("loss %d: %q", i, r.Output)
	}
}

// orphanRank sends messages in a ring, without end or for a limited time.
func orphanRank(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
	goOn := os.Getenv("FERRY_BOOTSTRAP_ON_LOSS") == "continue"
	timeout, err := time.ParseDuration(os.Getenv("FERRY_BOOTSTRAP_TIMEOUT"))
	if err != nil {
		return err
	}
	if c.Rank() == 0 {
		if err := os.WriteFile(os.Getenv(envLost), nil, 0o600); err != nil {
			return err
		}
	}
	start := time.Now()
	next, before := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
	last := make([]bool, 1) // Set by rank 0 for all.
	for round := 0; !last[0]; round++ {
		if c.Rank() == 0 && goOn {
			last[0] = time.Since(start) > 10*timeout
		}
		if err := mpi.Bcast(ctx, c, last, 0); err != nil {
			return checkOrphanEnd(err, goOn, start, timeout)
		}
		if _, err := c.Sendrecv(ctx, make([]byte, 5000), next, round, make([]byte, 5000), before, round); err != nil {
			return checkOrphanEnd(err, goOn, start, timeout)
		}
	}
	fmt.Print("went on")
	return nil
}

// checkOrphanEnd returns an error if an orphan has ended in a wrong way.
func checkOrphanEnd(err error, goOn bool, start time.Time, timeout time.Duration) error {
	after := time.Since(start).Round(time.Millisecond)
	if goOn || !errors.Is(err, mpi.ErrTransport) || after > timeout+promptLimit {
		return fmt.Errorf("after %v: %w", after, err)
	}
	fmt.Printf("%v until %v", after, err)
	return nil
}
