package cli_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/mpi"
)

var full = flag.Bool("full", false, "run Blame at its full size: 1,000 jobs of each size")

// howToFail has the failures of a rank of blamed, with their exit statuses.
var howToFail = map[string]struct {
	status int
	fail   func(*mpi.Session, *mpi.Comm)
}{
	"panic": {2, func(*mpi.Session, *mpi.Comm) { panic("the cause") }},
	"exit":  {7, func(*mpi.Session, *mpi.Comm) { os.Exit(7) }},
	"signal": {137, func(*mpi.Session, *mpi.Comm) {
		check(syscall.Kill(os.Getpid(), syscall.SIGKILL))
		select {}
	}},
	"error": {1, func(s *mpi.Session, c *mpi.Comm) {
		c.Close()
		s.Close()
		log.Fatal("the cause")
	}},
}

// blamed is README's program with one failing rank, which makes the others fail.
func blamed() {
	ctx := context.Background()
	session, err := mpi.OpenSession(ctx)
	check(err)
	defer session.Close()
	world, err := session.Group(ctx, "mpi://WORLD")
	check(err)
	comm, err := mpi.CommFromGroup(ctx, world, "org.example.sum")
	check(err)
	defer comm.Close()
	sum := make([]int64, 1)
	for round := 0; ; round++ {
		check(mpi.Allreduce(ctx, comm, []int64{1}, sum, mpi.Sum[int64]()))
		if round == 3 && fmt.Sprint(comm.Rank()) == os.Getenv("VICTIM") {
			howToFail[os.Getenv("HOW")].fail(session, comm)
		}
	}
}

// The others follow in the report, whenever they received the failure.
func TestBlame_FirstFailedRank_IsNamed(t *testing.T) {
	path, err := exec.LookPath("ferry")
	if err != nil {
		t.Fatal(err)
	}
	jobs := 12
	if *full {
		jobs = 1000
	}
	hows := []string{"panic", "error", "exit", "signal"}
	named := regexp.MustCompile(`(?m)^ferry run: rank (\d+) (failed first, and|\(pid \d+\))`)
	listed := regexp.MustCompile(`(?m)^ferry run:   ranks? ([\d,-]+) (\(pid \d+\) )?(exited|killed)`)
	ended := regexp.MustCompile(`(?m)^ferry run:   (one|\d+) ranks? ended because ferry run stopped the job`)
	for _, ranks := range []int{2, 4, 16} {
		if ranks > 4 && !*full {
			jobs = 4
		}
		began, right, failures := time.Now(), 0, 0
		for i := range jobs {
			how, victim := hows[i%len(hows)], i/len(hows)%ranks
			cmd := exec.Command(path, "run", "-n", strconv.Itoa(ranks), "--timeout", "2m", "blamed")
			cmd.Env = append(os.Environ(), "HOW="+how, fmt.Sprint("VICTIM=", victim), "XDG_RUNTIME_DIR="+t.TempDir())
			var errs bytes.Buffer
			cmd.Stderr = &errs
			_ = cmd.Run()
			text := errs.String()
			first := named.FindStringSubmatch(text)
			told := 0
			for _, m := range listed.FindAllStringSubmatch(text, -1) {
				told += countRanks(t, m[1])
			}
			if m := ended.FindStringSubmatch(text); m != nil {
				n, _ := strconv.Atoi(m[1])
				told += max(n, 1)
			}
			wrong := ""
			switch {
			case first == nil || first[1] != strconv.Itoa(victim):
				wrong = "another one is named"
			case cmd.ProcessState.ExitCode() != howToFail[how].status:
				wrong = fmt.Sprintf("the job's status is %d", cmd.ProcessState.ExitCode())
			case told != ranks:
				wrong = fmt.Sprintf("%d of %d ranks are listed", told, ranks)
			case (how == "panic" || how == "error") && !strings.Contains(text[strings.Index(text, "failed first"):], "the cause"):
				wrong = "what it wrote is not beside it"
			}
			failures += strings.Count(text, "process failed: rank "+strconv.Itoa(victim))
			if wrong == "" {
				right++
			} else {
				t.Errorf("%d ranks, rank %d fails by %s: %s\n%s", ranks, victim, how, wrong, text)
			}
		}
		t.Logf("%d ranks: %d of %d in %v; the others' errors name it %.1f times a job", ranks, right, jobs, time.Since(began).Round(time.Second/10), float64(failures)/float64(jobs))
	}
}

// countRanks returns the number of ranks in a list such as 0-3,7.
func countRanks(t *testing.T, list string) (n int) {
	t.Helper()
	for _, part := range strings.Split(list, ",") {
		low, high, isRange := strings.Cut(part, "-")
		if !isRange {
			high = low
		}
		first, err := strconv.Atoi(low)
		check(err)
		last, err := strconv.Atoi(high)
		check(err)
		n += last - first + 1
	}
	return n
}

// Ranks keep a terminal as standard error, and the failure still has the rank's last line.
func TestBlame_OnTerminal_HasLastLine(t *testing.T) {
	path, err := exec.LookPath("ferry")
	if err != nil {
		t.Fatal(err)
	}
	master, slave := terminal(t)
	cmd := exec.Command(path, "run", "-n", "2", "sh", "-c",
		`test -t 1 && test -t 2 && stty -F /dev/stderr size >&2; test $FERRY_BOOTSTRAP_LOCAL_RANK = 1 || exec sleep 60; echo the cause >&2; exit 3`)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 33, Col: 77}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Run()
		close(ended)
	}()
	var text strings.Builder
	read := make(chan string)
	go func() {
		b := make([]byte, 4096)
		for {
			n, err := master.Read(b)
			if err != nil {
				close(read)
				return
			}
			select {
			case read <- string(b[:n]):
			case <-t.Context().Done():
				return
			}
		}
	}()
	for deadline := time.After(30 * time.Second); !strings.Contains(text.String(), "exited with status 3"); {
		select {
		case s := <-read:
			text.WriteString(s)
		case <-deadline:
			t.Fatalf("%q", text.String())
		}
	}
	<-ended
	for _, want := range []string{"33 77\r\n", "the cause\r\n", "exited with status 3: the cause"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in %q", want, text.String())
		}
	}
}
