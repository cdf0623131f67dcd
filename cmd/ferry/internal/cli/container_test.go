package cli_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/internal/needs"
	"github.com/ferrympi/ferry/mpi"
)

// everyone exchanges a message with every rank that is larger than a small ring's frames.
func everyone() {
	ctx := context.Background()
	session, err := mpi.OpenSession(ctx)
	check(err)
	world, err := session.Group(ctx, "mpi://WORLD")
	check(err)
	comm, err := mpi.CommFromGroup(ctx, world, "org.example.everyone")
	check(err)
	out, in := bytes.Repeat([]byte{byte(comm.Rank())}, 40<<10), make([]byte, 40<<10)
	for i := range comm.Size() {
		to, from := (comm.Rank()+i)%comm.Size(), (comm.Rank()-i+comm.Size())%comm.Size()
		_, err := comm.Sendrecv(ctx, out, to, 0, in, from, 0)
		check(err)
		if in[0] != byte(from) || !bytes.Equal(in[1:], in[:len(in)-1]) {
			panic("the message is not the one that was sent")
		}
	}
	check(mpi.Barrier(ctx, comm))
	comm.Close()
	check(session.Close())
}

// shared calls within in a mount namespace with a separate /dev/shm, as in a container. Commands that
// start within inherit it.
func shared(t *testing.T, size string, within func()) {
	t.Helper()
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // Never unlocked, so that the thread ends with the goroutine.
		err := os.NewSyscallError("unshare", unix.Unshare(unix.CLONE_FS|unix.CLONE_NEWNS))
		if err == nil {
			err = os.NewSyscallError("mount", unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
		}
		switch {
		case err != nil:
		case size == "none":
			err = withoutShm(t.TempDir())
		default:
			err = os.NewSyscallError("mount", unix.Mount("shm", "/dev/shm", "tmpfs", 0, "size="+size))
		}
		if err == nil {
			within()
		}
		failed <- err
	}()
	if err := <-failed; err != nil {
		needs.Missing(t, "no mount namespace can be made here: %v", err)
	}
}

// withoutShm replaces /dev by a few devices.
func withoutShm(dev string) error {
	for _, name := range []string{"null", "zero", "random", "urandom"} {
		if err := os.WriteFile(filepath.Join(dev, name), nil, 0o600); err != nil {
			return err
		}
		if err := unix.Mount("/dev/"+name, filepath.Join(dev, name), "", unix.MS_BIND, ""); err != nil {
			return os.NewSyscallError("bind", err)
		}
	}
	return os.NewSyscallError("bind", unix.Mount(dev, "/dev", "", unix.MS_BIND|unix.MS_REC, ""))
}

// Docker's default is 64 MiB, and some sites have less. 32 ranks with all pairs still work, and explain shows the
// fallback. Without any room, the error has the sizes and the remedy, as in `ferry info`.
func TestContainer_SmallSharedMemory_Suffices(t *testing.T) {
	ferry, err := exec.LookPath("ferry")
	if err != nil {
		t.Fatal(err)
	}
	const (
		full    = `/dev/shm has no space: using a file in /tmp \(btl.shm.fallback_dir\)`
		shrunk  = `/dev/shm is short of space: reduced the ring to 64KiB`
		tcp     = `(?m) x .+ +ob1 +tcp `
		logged  = `level=WARN msg="btl shm: no space in shared memory: using a slower file" component=btl.shm file=/tmp/ferryf-`
		missing = `shm: unavailable: /dev/shm is not a directory \(set btl.shm.dir to a directory in memory\)`
	)
	for _, c := range []struct {
		size, command string
		status        int
		want, wantNot []string
	}{
		{"64m", "run -n 32 --explain everyone", 0, []string{shrunk}, []string{tcp}},
		{"64m", "bench memory_all -n 32", 0, nil, nil},
		{"16m", "run -n 32 --explain everyone", 0, []string{shrunk, full}, []string{tcp}},
		{"16m", "bench memory_all -n 32", 0, nil, nil},
		{"1m", "run -n 20 --explain everyone", 0, []string{full, logged}, []string{tcp}},
		{"1m", "bench memory_all -n 20", 0, nil, nil},
		{"1m", "run -n 20 --set btl=^tcp --set btl.shm.fallback_dir= everyone", 1,
			[]string{`no space for a segment: need \d+ KiB, free \d+ KiB; enlarge the file system \(docker: --shm-size\) or set btl.shm.dir`}, nil},
		{"none", "run -n 4 everyone", 0, nil, nil},
		{"none", "bench memory_all -n 4", 0, nil, nil},
		{"none", "info", 0, []string{`btl shm +unavailable +/dev/shm is not a directory \(set btl.shm.dir to a directory in memory\)`}, nil},
		{"none", "explain", 0, []string{tcp, missing}, nil},
		{"none", "run -n 2 --set btl=^tcp everyone", 1, []string{missing}, []string{"self"}},
	} {
		t.Run(c.size+" "+c.command, func(t *testing.T) {
			shared(t, c.size, func() {
				runtimeDir, err := os.MkdirTemp("", "ferry-test-") // a socket's name is short
				if err != nil {
					t.Error(err)
				}
				defer os.RemoveAll(runtimeDir)
				cmd := exec.Command(ferry, strings.Fields(c.command)...)
				cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+runtimeDir, "COLUMNS=1000")
				out, _ := cmd.CombinedOutput() // The status is checked below.
				missing := slices.IndexFunc(c.want, func(want string) bool { return !regexp.MustCompile(want).Match(out) })
				there := slices.IndexFunc(c.wantNot, func(not string) bool { return regexp.MustCompile(not).Match(out) })
				if status := cmd.ProcessState.ExitCode(); status != c.status || missing >= 0 || there >= 0 {
					t.Errorf("status %d, want %d, and %q but not %q in\n%s", status, c.status, c.want, c.wantNot, out)
				}
				if left, _ := filepath.Glob("/tmp/ferryf-*"); len(left) > 0 {
					t.Errorf("left in /tmp: %v", left)
				}
			})
		})
	}
}
