package soak

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap/local/localtest"
	"github.com/ferrympi/ferry/mpi"
)

// A sender is killed while both sides copy one message. Received contents are right, the receive
// ends with ErrProcFailed, and its memory is not written to afterwards.
func TestKill_DuringSplitCopy_BufferIsReleased(t *testing.T) {
	n := size(200, 6)
	for i := range n {
		protocol := []string{"split", "put", "random"}[i%3]
		dir := segments(t)
		r := localtest.RunJob(t, localtest.Job{Size: 2, Program: "kill-copies", MayFail: true, Timeout: time.Minute, Env: []string{
			"FERRY_BTL_SHM_DIR=" + dir, "FERRY_PML_OB1_PROTOCOL=" + protocol, fmt.Sprint(envRounds, "=", i)}})
		if r.Exit[0] != nil {
			t.Errorf("kill %d (%s): %v\n%s", i, protocol, r.Exit[0], r.Output[0])
		}
	}
}

// copyKillRank is the program of both ranks. Rank 1 sends and is killed.
func copyKillRank(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
	const length = 8 << 20
	rng := rand.New(rand.NewPCG(uint64(rounds()), 1)) // The same numbers in both ranks.
	size := func() int { return 40_000 + rng.IntN(length-40_000) }
	if c.Rank() == 1 {
		go func() {
			time.Sleep(time.Duration(2000+rand.IntN(30_000)) * time.Microsecond)
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}()
		buf := make([]byte, length)
		for k := byte(1); ; k++ {
			n := size()
			fillPattern(buf[:n], k)
			if err := c.Send(ctx, buf[:n], 0, 1); err != nil {
				return err
			}
		}
	}
	buf, want := make([]byte, length), make([]byte, length)
	for k := byte(1); ; k++ {
		n := size()
		fillPattern(want[:n], k)
		_, err := c.Recv(ctx, buf[:n], 1, 1)
		if err == nil {
			if !bytes.Equal(buf[:n], want[:n]) {
				return fmt.Errorf("message %d of %d bytes is wrong", k, n)
			}
			continue
		}
		if !errors.Is(err, mpi.ErrProcFailed) {
			return fmt.Errorf("want ErrProcFailed: %w", err)
		}
		// The memory belongs to this program again.
		fillPattern(buf, 0)
		fillPattern(want, 0)
		for range 20 {
			if !bytes.Equal(buf, want) {
				return errors.New("memory was modified after the end of its receive")
			}
		}
		return nil
	}
}

// fillPattern fills memory with a pattern that depends on k.
func fillPattern(b []byte, k byte) {
	for i := range b {
		b[i] = k + byte(i>>12)
	}
}
