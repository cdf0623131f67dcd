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

// The environment of ranks that lose their launcher.
const (
	envLost = "SOAK_LOST" // the file that is there when the cut rank has ended, or the launcher may go
)

// lossTimeout is bootstrap.timeout: how long a rank goes on that has lost its launcher.
const lossTimeout = time.Second

// TestCut: the connection of a rank with its launcher is cut at a random moment. The others hear
// that it has failed. To itself nobody says anything any more, so it gives up the others,
// and no operation waits for longer than that takes.
func TestCut(t *testing.T) { cuts(t, size(40, 2)) }

// TestCutOverNetwork is TestCut where the network matches.
func TestCutOverNetwork(t *testing.T) {
	needs.Time(t)
	cuts(t, size(40, 1), overNetwork(t)...)
}

func cuts(t *testing.T, n int, env ...string) {
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

// cut is the program of all: rank 2 is the one that is cut off.
func cut(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
	rng := rand.New(rand.NewPCG(uint64(rounds()), 0)) // the same in all
	ended := os.Getenv(envLost)
	moment, failed := make(chan time.Time, 1), make(chan error, 1)
	if c.Rank() == 2 {
		go func() {
			time.Sleep(time.Duration(rand.IntN(30_000)) * time.Microsecond)
			moment <- time.Now()
			if n := shutDownLaunchers(); n != 1 {
				failed <- fmt.Errorf("%d connections with the launcher are cut", n)
			}
		}()
	}
	var err error
	for round := 0; err == nil; round++ {
		err = talk(ctx, rng, c, round)
	}
	if c.Rank() < 2 {
		if !errors.Is(err, mpi.ErrProcFailed) && !errors.Is(err, mpi.ErrProcFailedPending) {
			return fmt.Errorf("not ErrProcFailed: %w", err)
		}
		// No end of a session is to free the rank that is cut off: who stays has not closed.
		for i := 0; !exists(ended); i++ {
			b := []byte{byte(i)}
			if _, err := mpi.Sendrecv(ctx, c, b, 1-c.Rank(), i, b, 1-c.Rank(), i); err != nil {
				if exists(ended) { // and the other one has seen it first
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
		return fmt.Errorf("not ErrTransport: %w", err)
	case late > lossTimeout+prompt:
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

// talk is one exchange of rank 2 with each other, or of all.
func talk(ctx context.Context, rng *rand.Rand, c *mpi.Comm, tag int) error {
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
		case 2: // from anybody
			source = mpi.AnySource
			fallthrough
		case 3:
			_, err = c.Sendrecv(ctx, out, peer, tag, in, source, tag)
		case 4: // one after the other, acknowledged
			if c.Rank() == 2 {
				err = c.Ssend(ctx, out, peer, tag)
			}
			if err == nil {
				_, err = c.Recv(ctx, in, peer, tag)
			}
			if err == nil && c.Rank() != 2 {
				err = c.Ssend(ctx, out, peer, tag)
			}
		default: // asked for before
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

// shutDownLaunchers shuts down this process's connections with launchers, and returns how
// many there were.
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

// TestCutLauncherEndsTheRanks: the launcher goes at a random moment, and ranks that hear
// nothing of one another any more end.
func TestCutLauncherEndsTheRanks(t *testing.T) {
	deserted(t, size(20, 1), lossTimeout, "FERRY_BOOTSTRAP_ON_LOSS=end")
}

// TestCutLauncherIsNotMissed: ranks go on without it, for longer than its loss would have
// taken to end them, if they were told so.
func TestCutLauncherIsNotMissed(t *testing.T) {
	deserted(t, size(20, 1), 100*time.Millisecond, "FERRY_BOOTSTRAP_ON_LOSS=continue")
}

func deserted(t *testing.T, n int, timeout time.Duration, env ...string) {
	t.Helper()
	for i := range n {
		dir, desert, begun := segments(t), make(chan struct{}), filepath.Join(t.TempDir(), "begun")
		go func() {
			defer close(desert)
			await(t.Context(), t, func() bool { return exists(begun) })
			time.Sleep(time.Duration(rand.IntN(30_000)) * time.Microsecond)
		}()
		r := localtest.RunJob(t, localtest.Job{Size: 3, Program: "orphan", Timeout: time.Minute, Desert: desert, Env: append(env,
			"FERRY_BTL_SHM_DIR="+dir, envLost+"="+begun, fmt.Sprint("FERRY_BOOTSTRAP_TIMEOUT=", timeout))})
		if left := files(t, dir); len(left) > 0 {
			t.Errorf("loss %d: left in %s: %v", i, dir, left)
		}
		t.Logf("loss %d: %q", i, r.Output)
	}
}

// orphan sends messages round without end, or for some time if it is to go on.
func orphan(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
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
	last := make([]bool, 1) // says rank 0, for all
	for round := 0; !last[0]; round++ {
		if c.Rank() == 0 && goOn {
			last[0] = time.Since(start) > 10*timeout
		}
		if err := mpi.Bcast(ctx, c, last, 0); err != nil {
			return ends(err, goOn, start, timeout)
		}
		if _, err := c.Sendrecv(ctx, make([]byte, 5000), next, round, make([]byte, 5000), before, round); err != nil {
			return ends(err, goOn, start, timeout)
		}
	}
	fmt.Print("went on")
	return nil
}

// ends says what is wrong with the end of an orphan.
func ends(err error, goOn bool, start time.Time, timeout time.Duration) error {
	after := time.Since(start).Round(time.Millisecond)
	if goOn || !errors.Is(err, mpi.ErrTransport) || after > timeout+prompt {
		return fmt.Errorf("after %v: %w", after, err)
	}
	fmt.Printf("%v until %v", after, err)
	return nil
}
