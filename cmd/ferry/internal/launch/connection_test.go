package launch

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/local"
)

// envAct makes this program a rank that executes one of acts.
const envAct = "LAUNCH_TEST_ACT"

var acts = map[string]func() error{
	"cut":      cut,
	"elastic":  elastic,
	"outsider": outsider,
	"stopped":  stopped,
	"parts":    parts,
	"early":    early,
	"verbose":  verbose,
}

// cut connects, cuts the connection, and then waits for the end of its input.
func cut() error {
	c, err := local.Dial(context.Background(), os.Environ(), bootstrap.Env{})
	if err != nil {
		return err
	}
	if n := shutDownSockets(); n != 1 {
		return fmt.Errorf("%d connections cut", n)
	}
	_, err = bufio.NewReader(os.Stdin).ReadString('\n')
	c.Close()
	return err
}

// stopped connects and stops itself.
func stopped() error {
	c, err := local.Dial(context.Background(), os.Environ(), bootstrap.Env{})
	if err != nil {
		return err
	}
	defer c.Close()
	if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
		return err
	}
	_, err = bufio.NewReader(os.Stdin).ReadString('\n') // Until the signal has taken effect.
	return err
}

// verbose reports more than the launcher keeps.
func verbose() error {
	c, err := local.Dial(context.Background(), os.Environ(), bootstrap.Env{})
	if err != nil {
		return err
	}
	defer c.Close()
	reporter, ok := c.(bootstrap.Reporter)
	if !ok {
		return errors.New("no bootstrap.Reporter")
	}
	for range mostReported/bootstrap.MaxValue + 2 {
		if err := reporter.Report(context.Background(), "junk", make([]byte, bootstrap.MaxValue)); err != nil {
			return err
		}
	}
	return nil
}

func TestReports_MoreThanTheLimitOfARank_AreNotedOnce(t *testing.T) {
	j, notes, _ := acting(t, "verbose")
	const want = "rank 0 reported more than 16 MiB: further reports are dropped"
	if res := run(t, j); res.Status != 0 || len(*notes) != 1 || (*notes)[0] != want || stdoutOf(j) != "" {
		t.Errorf("status %d, notes %q, output %q; want %q", res.Status, *notes, stdoutOf(j), want)
	}
}

// shutDownSockets shuts down the Unix sockets that this process has, and returns how many
// there were.
func shutDownSockets() (n int) {
	fds, _ := filepath.Glob("/proc/self/fd/*")
	for _, path := range fds {
		fd, err := strconv.Atoi(filepath.Base(path))
		if err != nil {
			continue
		}
		if peer, err := unix.Getpeername(fd); err == nil {
			if _, ok := peer.(*unix.SockaddrUnix); ok && unix.Shutdown(fd, unix.SHUT_RDWR) == nil {
				n++
			}
		}
	}
	return n
}

// outsider connects as a process outside of the job.
func outsider() error {
	environ := os.Environ()
	for i, v := range environ {
		if strings.HasPrefix(v, "FERRY_BOOTSTRAP_LOCAL_TOKEN=") {
			environ[i] = "FERRY_BOOTSTRAP_LOCAL_TOKEN=guessed"
		}
	}
	_, err := local.Dial(context.Background(), environ, bootstrap.Env{})
	if err == nil {
		return errors.New("let in")
	}
	return nil
}

// acting returns a job of one rank that executes one of acts. The test writes to its standard
// input.
func acting(t *testing.T, act string) (j Job, notes *[]string, input *os.File) {
	t.Helper()
	j = shell(t, 1, "")
	j.Program, j.Args, j.Env = os.Args[0], nil, []string{envAct + "=" + act}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	notes = new([]string)
	j.Stdin, j.Note = r, func(line string) { *notes = append(*notes, line) }
	return j, notes, w
}

func TestConnection_RankLosesIt_JobEnds(t *testing.T) {
	j, notes, _ := acting(t, "cut")
	j.LossGrace = 10 * time.Millisecond
	res := run(t, j)
	if res.Status != 128+int(syscall.SIGTERM) || len(*notes) != 2 || !strings.Contains((*notes)[0], "has lost its connection") || !strings.Contains((*notes)[1], "still running") {
		t.Errorf("status %d, notes %q, output %q", res.Status, *notes, stdoutOf(j))
	}
}

func TestConnection_RankLosesItWithContinue_JobContinues(t *testing.T) {
	j, notes, input := acting(t, "cut")
	j.LossGrace, j.ContinuesOnFailure = time.Nanosecond, true
	note := j.Note
	j.Note = func(line string) {
		note(line)
		fmt.Fprintln(input)
	}
	if res := run(t, j); res.Status != 0 || len(*notes) != 1 || stdoutOf(j) != "" {
		t.Errorf("status %d, notes %q, output %q", res.Status, *notes, stdoutOf(j))
	}
}

func TestProcessTimeout_StoppedRank_DoesNotKeepTheJob(t *testing.T) {
	for name, c := range map[string]struct {
		isContinued bool
		last        string
	}{
		"end":      {false, "still running and counts as failed: terminating the job"},
		"continue": {true, "still running and counts as failed: killing it"},
	} {
		t.Run(name, func(t *testing.T) {
			j, notes, _ := acting(t, "stopped")
			j.ProcessTimeout, j.LossGrace, j.ContinuesOnFailure = 100*time.Millisecond, 10*time.Millisecond, c.isContinued
			res := run(t, j)
			all := strings.Join(*notes, "\n")
			if res.Status != 128+int(syscall.SIGKILL) || !strings.Contains(all, "has answered no query for 100ms") || !strings.Contains(all, c.last) {
				t.Errorf("status %d, notes %q, output %q", res.Status, *notes, stdoutOf(j))
			}
		})
	}
}

func TestConnection_ProcessOutsideOfJob_IsNoted(t *testing.T) {
	j, notes, _ := acting(t, "outsider")
	if res := run(t, j); res.Status != 0 || len(*notes) != 1 || !strings.Contains((*notes)[0], "wrong token") || stdoutOf(j) != "" {
		t.Errorf("status %d, notes %q, output %q", res.Status, *notes, stdoutOf(j))
	}
}
