package pmixc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ferrympi/ferry/internal/pmixc/pmixtest"
)

// hang stops the server, and then sends it a request.
func hang(ctx context.Context, l *Library, p Proc) (err error) {
	server := os.Getppid()
	if err := syscall.Kill(server, syscall.SIGSTOP); err != nil {
		return err
	}
	defer func() { // Runs when the server continues.
		_, late := l.Get(ctx, Proc{p.Namespace, 1}, "ferry.test", 0)
		if err == nil && !Is(late, NotFound) {
			err = fmt.Errorf("afterwards: %w", late)
		}
	}()
	defer syscall.Kill(server, syscall.SIGCONT)
	for stopped := false; !stopped; time.Sleep(time.Millisecond) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", server))
		if err != nil {
			return err
		}
		stopped = strings.Contains(string(text), ") T ")
	}
	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	_, err = l.Get(short, Proc{p.Namespace, 1}, "ferry.test", 0)
	if !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no deadline: %w", err)
	}
	fmt.Println(err)
	return nil
}

// libpmix waits for its server without a limit.
func TestServerIsStopped_CallsEnd(t *testing.T) {
	library(t)
	out := pmixtest.Run(t, pmixtest.Server(t, "-n", "1"), "hang")
	if !strings.Contains(out, "PMIx_Get has not returned: context deadline exceeded") {
		t.Error(out)
	}
}

func abort(ctx context.Context, l *Library, p Proc) error {
	if p.Rank == 0 {
		return l.Abort(ctx, 17, "that is enough")
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// Ranks that wait in other calls end too.
func TestAbort_EndsJob(t *testing.T) {
	library(t)
	for name, launcher := range map[string][]string{"server": pmixtest.Server(t, "-n", "2"), "mpirun": pmixtest.Mpirun(t, 2)} {
		t.Run(name, func(t *testing.T) {
			out, err := pmixtest.RunAny(t, launcher, "abort")
			if err == nil {
				t.Errorf("status 0: %s", out)
			}
			t.Log(out)
		})
	}
}

// leave ends rank 0 in the way of LEAVE while rank 1 runs.
func leave(ctx context.Context) error {
	return member(func(ctx context.Context, l *Library, p Proc) error {
		exit := os.Getenv("LEAVE") == "exit"
		if err := l.Fence(ctx, p.Namespace, []uint32{0, 1}, 30*time.Second); err != nil {
			return err
		}
		switch {
		case exit && p.Rank == 0:
			os.Exit(0)
		case exit:
			<-ctx.Done() // The launcher ends it, or it ends with an error.
			return errors.New("no launcher has ended this process")
		case p.Rank == 0:
			return pmixtest.SetFlag("leaves", "")
		}
		err := pmixtest.AwaitFlags(ctx, "leaves")
		time.Sleep(200 * time.Millisecond)
		return err
	})(ctx)
}

// Open MPI's launcher takes it for a failure whatever the status is.
func TestExit_WithoutFinalize_EndsJob(t *testing.T) {
	library(t)
	pmixtest.Run(t, pmixtest.Mpirun(t, 2), "leave", "LEAVE=finalize")
	// A busy launcher may end without its message.
	for range 3 {
		out, err := pmixtest.RunAny(t, pmixtest.Mpirun(t, 2), "leave", "LEAVE=exit")
		if err == nil || strings.Contains(out, "no launcher has ended") {
			t.Fatalf("exit: %v\n%s", err, out)
		}
		if strings.Contains(out, "without calling") {
			return
		}
	}
	t.Error("the launcher does not say that a process ended without finalizing")
}

// again lets rank 1 finalize and initialize again, and then read earlier and new values.
func again(ctx context.Context, l *Library, p Proc) error {
	const key = "ferry.test"
	both := []uint32{0, 1}
	if err := errors.Join(l.Put(ctx, key, []byte("first")), l.Commit(ctx), l.Fence(ctx, p.Namespace, both, 30*time.Second)); err != nil {
		return err
	}
	if p.Rank == 0 {
		time.Sleep(time.Second)
		return nil
	}
	if err := l.Finalize(ctx); err != nil {
		return err
	}
	if _, err := l.Init(ctx); err != nil {
		return err
	}
	for _, who := range both {
		v, err := l.Get(ctx, Proc{p.Namespace, who}, key, 0)
		fmt.Printf("rank 1: of rank %d: %q %v\n", who, v.Bytes, err)
	}
	return nil
}

// With 4.2.2 it finds neither other processes' values nor its own, so a process initializes once.
// 5.0.7 finds both.
func TestInit_SecondTime_MayFindNoEntries(t *testing.T) {
	library(t)
	t.Log(pmixtest.Run(t, pmixtest.Mpirun(t, 2), "again"))
}
