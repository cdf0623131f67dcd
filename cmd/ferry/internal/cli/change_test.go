package cli_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/ferrympi/ferry/framework"
)

func TestResize_ProgramTakesPart_ChangesTheJob(t *testing.T) {
	j := startElastic(t, "")
	if r := j.list(); r == nil || r.State != "running" || !strings.HasSuffix(r.Program, "/elastic") || r.Ranks != 2 || r.Limit != 4 || len(r.Changes) != 0 {
		t.Errorf("listed as %+v", r)
	}
	j.want(0, "2 added, 0 removed; ferry://set/2 has 4 ranks\n")(j.resize("--add", "2"))
	j.want(1, "new processes: 9 requested, 0 fit: the job may have 4 at a time (--max-ranks)")(j.resize("--add", "9"))
	j.want(0, "0 added, 3 removed; ")(j.resize("--sub", "3"))
	j.want(0, "3 added, 0 removed; ")(j.resize("--add", "9", "--partial"))
	j.want(0, "1 added, 1 removed; ")(j.resize("--replace", "1"))
	j.want(1, "5 members to remove: ")(j.resize("--sub", "5"))
	j.want(1, `unknown process set: "mpi://WORLDS"`)(j.resize("--sub", "1", "--pset", "mpi://WORLDS"))
	j.ranks(2 + 3 + 1)
	if r := j.list(); r == nil || r.Ranks != 4 {
		t.Errorf("listed as %+v", r)
	}
	status, table := j.ferry("ferry", "ps")
	if fields := strings.Fields(strings.Split(table, "\n")[0]); status != 0 || !slices.Equal(fields, []string{"PID", "RANKS", "LIMIT", "CHANGE", "PROGRAM"}) || !strings.Contains(table, fmt.Sprint(j.cmd.Process.Pid)) {
		t.Errorf("status %d, %s", status, table)
	}
	j.signal(syscall.SIGUSR1)
	if status := j.wait(); status != 0 || entries(t, j.dir) != 0 {
		t.Errorf("status %d, %d files are left: %s", status, entries(t, j.dir), j.errs.String())
	}
	if r := j.list(); r != nil {
		t.Errorf("listed as %+v after its end", r)
	}
	j.want(1, "there is no process ")(j.resize("--add", "1"))
}

// TestResize_ProgramNeverQueries_IsWithdrawn at the end of the wait, and by INT. Meanwhile another change is refused.
func TestResize_ProgramNeverQueries_IsWithdrawn(t *testing.T) {
	j := startElastic(t, "deaf")
	j.want(1, `the program never queried for changes of "mpi://WORLD" within 500ms`)(j.resize("--add", "1", "--wait", "500ms"))
	j.ranks(1)
	first, wait := j.begin("--add", "2")
	r := j.await("the start", func(r *running) bool { return r.Changes[0].State == "integrating" })
	if c := r.Changes[0]; c.Type != "add" || c.Pset != "mpi://WORLD" || c.Add != 2 || c.Sub != 0 || c.Members != 4 || c.Integrated != 0 || c.Requester != "user" || r.Ranks != 4 {
		t.Errorf("listed as %+v", r)
	}
	added := j.ranks(2)
	j.want(1, `the change "ferry://delta/3" of "mpi://WORLD" has rank 0 of "mpi://WORLD"`)(j.resize("--sub", "1"))
	if err := first.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	j.want(130, "interrupt signal received: the request is withdrawn, and nothing has changed")(wait())
	if r := j.list(); len(r.Changes) > 0 || r.Ranks != 2 {
		t.Errorf("listed as %+v", r)
	}
	awaitEnd(t, added)
	// The end of the job withdraws it too.
	_, wait = j.begin("--sub", "1")
	j.signal(syscall.SIGTERM)
	j.want(1, "the job is ending")(wait())
	if status := j.wait(); status != 143 {
		t.Errorf("status %d", status)
	}
}

func TestResize_OtherUserOrNoJob_IsRefused(t *testing.T) {
	j := startElastic(t, "deaf")
	j.want(1, fmt.Sprintf("process %d runs no job that can be changed", os.Getpid()))(j.ferry("ferry", "resize", fmt.Sprint(os.Getpid()), "--add", "1"))
	if os.Getuid() != 0 {
		t.Skip("only root can be another user")
	}
	status, out := j.ferry("ferry-nobody", "resize", fmt.Sprint(j.cmd.Process.Pid), "--add", "1")
	j.want(1, fmt.Sprintf("process %d belongs to user 0: only that user can change its job", j.cmd.Process.Pid))(status, out)
	if status, out := j.ferry("ferry-nobody", "ps"); status != 0 || strings.Contains(out, fmt.Sprint(j.cmd.Process.Pid)) {
		t.Errorf("status %d, the other user sees %q", status, out)
	}
}

// TestPs_JobIsStopped_DoesNotAnswer and a change is refused at once.
func TestPs_JobIsStopped_DoesNotAnswer(t *testing.T) {
	j := startElastic(t, "stuck")
	j.suspend(nil)
	if r := j.list(); r == nil || r.State != "unavailable" || r.Reason != "does not answer" {
		t.Errorf("listed as %+v", r)
	}
	j.want(0, "does not answer")(j.ferry("ferry", "ps"))
	j.want(1, "does not answer: continue it if it is stopped (fg, or kill -CONT ")(j.resize("--add", "1"))
	j.signal(syscall.SIGCONT)
	j.await("the answer", func(r *running) bool { return r.State == "running" })
}

// TestControl_Garbage_IsOneLine of ferry run, which serves other requests, also from an environment with another
// runtime directory.
func TestControl_Garbage_IsOneLine(t *testing.T) {
	j := startElastic(t, "")
	sockets, err := filepath.Glob(filepath.Join(j.dir, "ferry-*", "control"))
	if err != nil || len(sockets) != 1 {
		t.Fatalf("sockets %v, %v", sockets, err)
	}
	c, err := net.Dial("unix", sockets[0])
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("GET / HTTP/1.1\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(c); err != nil { // Until the connection ends.
		t.Fatal(err)
	}
	if _, err := os.Stat("/proc/net/unix"); err == nil {
		own := j.dir
		j.dir = t.TempDir()
		if r := j.list(); r == nil || r.State != "running" {
			t.Errorf("listed as %+v", r)
		}
		j.dir = own
	}
	j.signal(syscall.SIGUSR1)
	if status := j.wait(); status != 0 {
		t.Errorf("status %d", status)
	}
	if errs := j.errs.String(); strings.Count(errs, "\n") != 1 || !strings.HasPrefix(errs, "ferry run: control socket: a request was refused (pid: ") || !strings.Contains(errs, "malformed line") {
		t.Errorf("standard error %q", errs)
	}
}

// TestChange_JobEndsMeanwhile_AddedRanksEndToo while they have not integrated the change, for which the
// others wait.
func TestChange_JobEndsMeanwhile_AddedRanksEndToo(t *testing.T) {
	segments := t.TempDir()
	t.Setenv(framework.EnvName("btl.shm.dir"), segments)
	for sig, wantStatus := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143, syscall.SIGKILL: -1} {
		j := startElastic(t, "stuck")
		_, wait := j.begin("--add", "2")
		added := j.ranks(2)
		j.await("the integration", func(r *running) bool { return len(r.Changes) == 1 && r.Changes[0].Integrated == 2 })
		j.signal(sig)
		if status := j.wait(); status != wantStatus {
			t.Errorf("%v: status %d: %s", sig, status, j.errs.String())
		}
		awaitEnd(t, added)
		j.want(1, "the job ")(wait())
		if sig == syscall.SIGKILL {
			j.removesLeftovers()
		}
		if left := entries(t, j.dir) + entries(t, segments); left > 0 {
			t.Errorf("%v: %d files are left", sig, left)
		}
	}
}

// TestChange_StopsMeanwhile_AddedRanksStopToo and continue, with the change in progress.
func TestChange_StopsMeanwhile_AddedRanksStopToo(t *testing.T) {
	j := startElastic(t, "stuck")
	resize, wait := j.begin("--add", "2")
	added := j.ranks(2)
	j.suspend(added)
	j.signal(syscall.SIGCONT)
	j.await("the integration", func(r *running) bool {
		return r.State == "running" && len(r.Changes) == 1 && r.Changes[0].Integrated == 2
	})
	for _, pid := range added {
		if isStopped(pid) || !alive(pid) {
			t.Errorf("rank %d does not run", pid)
		}
	}
	if err := resize.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	j.want(130, "interrupt")(wait())
	awaitEnd(t, added)
	j.signal(syscall.SIGUSR1)
	if status := j.wait(); status != 0 {
		t.Errorf("status %d: %s", status, j.errs.String())
	}
}
