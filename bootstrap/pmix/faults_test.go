package pmix

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/mesh"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/pmixc/pmixtest"
)

// dies ends rank 1 without an entry.
func dies(ctx context.Context) error {
	l, err := openLauncher(ctx, defaults)
	if err != nil {
		return err
	}
	id := l.Identity()
	if id.Proc.Rank == 1 {
		time.Sleep(200 * time.Millisecond)
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	_, err = await(ctx, l, framework.Proc{Namespace: id.Proc.Namespace, Rank: 1})
	fmt.Printf("rank 0: %v\n", err)
	if !errors.Is(err, framework.ErrProcFailed) {
		return errors.New("want ErrProcFailed")
	}
	return l.Close()
}

func TestFind_ProcessDiedWithoutEntry_IsErrProcFailed(t *testing.T) {
	installed(t)
	out, _ := pmixtest.RunAny(t, pmixtest.Server(t, "-n", "2"), "dies")
	if !strings.Contains(out, "rank 0: exit 0") {
		t.Error(out)
	}
	t.Log(out)
}

// orphan looks up an entry until the launcher is lost. Its output is then unread.
func orphan(ctx context.Context) error {
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, 0, 0, 0, 0); err != nil {
		return err
	}
	l, err := publish(ctx)
	if err != nil {
		return err
	}
	id := l.Identity()
	if err := finds(ctx, l, 1-id.Proc.Rank); err != nil {
		return err
	}
	if err := pmixtest.SetFlag(fmt.Sprint("ready", id.Proc.Rank), ""); err != nil {
		return err
	}
	_, err = await(ctx, l, framework.Proc{Namespace: id.Proc.Namespace, Rank: 99})
	begin := time.Now()
	text := fmt.Sprintf("%t %v; close %v", errors.Is(err, framework.ErrTransport), err, l.Close())
	_, known, err := l.Find(ctx, id.Proc)
	text += fmt.Sprintf(" after %v; %t %v", time.Since(begin), known, err)
	return pmixtest.SetFlag(fmt.Sprint("result", id.Proc.Rank), text)
}

// Neither calls of libpmix nor repeated lookups continue without end.
func TestLauncher_IsKilled_CallsEnd(t *testing.T) {
	for name, launcher := range launchers(t, 2) {
		t.Run(name, func(t *testing.T) {
			job := pmixtest.Start(t, launcher, "orphan")
			for _, rank := range []string{"0", "1"} {
				job.Await(t, "ready"+rank)
			}
			begin := time.Now()
			if err := job.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			for _, rank := range []string{"0", "1"} {
				text := job.Await(t, "result"+rank)
				t.Logf("rank %s, %v after the kill: %s", rank, time.Since(begin), text)
				if !strings.HasPrefix(text, "true") {
					t.Error("want ErrTransport")
				}
			}
			if _, err := job.Wait(); err == nil {
				t.Error("the launcher has ended well")
			}
		})
	}
}

// watch ends ranks 1 and 2, one before rank 0 watches and one while it does, and then the launcher.
func watch(ctx context.Context) error {
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, 0, 0, 0, 0); err != nil {
		return err
	}
	l, err := openLauncher(ctx, defaults)
	if err != nil {
		return err
	}
	id := l.Identity()
	if me := id.Proc.Rank; me > 0 {
		err := errors.Join(pmixtest.SetFlag(fmt.Sprint("ready", me), ""), pmixtest.AwaitFlags(ctx, fmt.Sprint("die", me)))
		return errors.Join(err, syscall.Kill(os.Getpid(), syscall.SIGKILL))
	}
	if err := pmixtest.AwaitFlags(ctx, "ready1", "ready2"); err != nil {
		return err
	}
	if err := pmixtest.SetFlag("die1", ""); err != nil {
		return err
	}
	if _, err := await(ctx, l, framework.Proc{Namespace: id.Proc.Namespace, Rank: 1}); !errors.Is(err, framework.ErrProcFailed) {
		return err
	}
	w, said := mesh.Watcher(l), make(chan bootstrap.Event, 10)
	next := func() string {
		select {
		case e := <-said:
			return fmt.Sprintf("%d %d %s; ", e.Kind, e.Proc.Rank, e.Reason)
		case <-ctx.Done():
			return "nothing; "
		}
	}
	w.Watch(func(bootstrap.Event) { said <- bootstrap.Event{} })
	w.Watch(func(e bootstrap.Event) { said <- e }) // It replaces the first one.
	text := next()
	if strings.HasPrefix(text, "0 0") { // The first one has received it too.
		text = next()
	}
	if err := pmixtest.SetFlag("die2", ""); err != nil {
		return err
	}
	text += next()
	if err := pmixtest.SetFlag("kill", ""); err != nil {
		return err
	}
	text += next()
	w.Watch(nil)
	return errors.Join(pmixtest.SetFlag("result", text), l.Close())
}

// Earlier events are delivered too, each once.
func TestWatch_EventsOfLauncher_AreDelivered(t *testing.T) {
	installed(t)
	job := pmixtest.Start(t, pmixtest.Server(t, "-n", "3"), "watch")
	job.Await(t, "kill")
	if err := job.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	const dead = `the launcher reports \S*PROC.ABORTED \(-7\); `
	want := regexp.MustCompile("^1 1 " + dead + "1 2 " + dead + "2 0 the connection to the PMIx server at tcp4://")
	if text := job.Await(t, "result"); !want.MatchString(text) {
		t.Errorf("got %q, want %v", text, want)
	}
	if out, err := job.Wait(); err == nil {
		t.Error(out)
	}
}

// unreachable prints the result of opening without a server.
func unreachable(ctx context.Context) error {
	begin := time.Now()
	limited, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	l, err := openLauncher(limited, defaults)
	fmt.Printf("%t %v after %v\n", l == nil && (errors.Is(err, framework.ErrTransport) || errors.Is(err, limited.Err())), err, time.Since(begin))
	if limited.Err() != nil {
		os.Exit(0) // A thread in PMIx_Init does not return.
	}
	return nil
}

// Without a server the error is immediate, and with a silent one it comes with the end of the
// caller's context.
func TestOpen_ServerIsUnreachable_IsAnError(t *testing.T) {
	installed(t)
	silent, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for name, addr := range map[string]string{"gone": "127.0.0.1:9", "silent": silent.Addr().String(), "garbage": "what is this"} {
		env := []string{"PMIX_NAMESPACE=job", "PMIX_RANK=0", "PMIX_VERSION=4.2.2"}
		for _, v := range []string{"41", "4", "3"} {
			env = append(env, "PMIX_SERVER_URI"+v+"=pmix-server.1;tcp4://"+addr)
		}
		out, err := pmixtest.RunAny(t, []string{"/usr/bin/env"}, "unreachable", env...)
		if err != nil || !strings.Contains(out, "true bootstrap pmix: connect with ") || !strings.Contains(out, addr) {
			t.Errorf("%s: %v: %s", name, err, out)
		}
		t.Logf("%s: %s", name, out)
	}
}
