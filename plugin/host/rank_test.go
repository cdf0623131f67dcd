package host_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ferrympi/ferry/config"
	"github.com/ferrympi/ferry/internal/needs"
)

// asRank starts this test binary as a rank with a plugin, and returns the plugin's process id. what selects the behavior of the rank.
func asRank(t *testing.T, what string) (rank *exec.Cmd, in io.Writer, out io.Reader, plugin int) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	rank = exec.CommandContext(t.Context(), self, "-test.run", "^TestRankProcess$")
	rank.Env = append(os.Environ(), rankVariable+"="+what)
	if in, err = rank.StdinPipe(); err == nil {
		out, err = rank.StdoutPipe()
	}
	if err == nil {
		err = rank.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	out = bufio.NewReader(out)
	if _, err := fmt.Fscan(out, &plugin); err != nil {
		t.Fatal(err)
	}
	return rank, in, out, plugin
}

func TestPlugin_RankIsKilled_Ends(t *testing.T) {
	rank, _, _, pid := asRank(t, "killed")
	_ = rank.Process.Kill()
	_ = rank.Wait()
	waitForEnd(t, pid)
}

// The kernel does not kill the child of a script with the rank.
func TestServe_RankKilledDuringOpen_Exits(t *testing.T) {
	needs.Time(t)
	dir, err := os.MkdirTemp("/tmp", "plugin-") // short, for the sockets of ranks that are killed
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	t.Setenv("TMPDIR", dir)
	var pids []int
	for _, protocol := range []string{config.ProtocolGoPlugin, config.ProtocolFerry} {
		rank, _, _, pid := asRank(t, protocol)
		_ = rank.Process.Kill()
		_ = rank.Wait()
		pids = append(pids, pid)
	}
	for _, pid := range pids {
		waitForEnd(t, pid)
	}
}

// waitForEnd waits until a process of any parent has exited.
func waitForEnd(t *testing.T, pid int) {
	t.Helper()
	for limit := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		if time.Now().After(limit) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			t.Errorf("process %d has not ended", pid)
			return
		}
	}
}

// A rank that was stopped for longer than health_timeout has seen no replies. It must not kill its plugin for that.
func TestPlugin_RankWasStopped_IsNotBlamed(t *testing.T) {
	rank, in, out, before := asRank(t, "stopped")
	_ = rank.Process.Signal(syscall.SIGSTOP)
	time.Sleep(5 * silence)
	_ = rank.Process.Signal(syscall.SIGCONT)
	fmt.Fprintln(in, "go on")
	var after int
	if _, err := fmt.Fscan(out, &after); err != nil || after != before {
		t.Errorf("the plugin was %d, and is %d: %v", before, after, err)
	}
	if err := rank.Wait(); err != nil {
		t.Error(err)
	}
}

// silence is how long the plugin of a rank that is stopped may be silent.
const silence = 300 * time.Millisecond

const rankVariable = "FERRY_TEST_RANK"

func TestRankProcess(t *testing.T) {
	what := os.Getenv(rankVariable)
	if what == "" {
		t.Skip("it is a part of other tests")
	}
	if what == config.ProtocolGoPlugin || what == config.ProtocolFerry {
		hangInOpen(t, what)
		return
	}
	m, env, _, err := open(t, entry("loopback"), io.Discard, set(t, map[string]string{"btl.acme.health_timeout": silence.String()}))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(child(t))
	if what == "killed" {
		time.Sleep(time.Minute)
		return
	}
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	env.Engine.Add(m)
	time.Sleep(2 * silence) // The progress goroutine polls, and would detect that it was killed.
	fmt.Println(child(t))
}

// hangInOpen opens a plugin that is the child of a script and never answers, and prints its process id.
func hangInOpen(t *testing.T, protocol string) {
	e := script(t, "#!/bin/sh\n%s \"$@\"\n")
	e.Protocol, e.Command[1] = protocol, "hangs in open"
	r, w := io.Pipe()
	go func() {
		for lines := bufio.NewScanner(r); lines.Scan(); {
			if _, pid, ok := strings.Cut(lines.Text(), `msg="pid `); ok {
				fmt.Println(strings.TrimRight(pid, `"`))
			}
		}
	}()
	_, _, _, err := open(t, e, w, set(t, map[string]string{"btl.acme.start_timeout": "10m"}))
	t.Error(err)
}
