// Package faultstest tests wrappers that inject faults of which their process does
// not come back: the test program starts itself again as that process.
package faultstest

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The fault of a process that is to be lost, and what it prints when it has it.
const (
	env      = "FAULTS_TEST"
	injected = "injected"
)

// Counter is what a wrapper with faults.Count is.
type Counter interface{ Injected() int64 }

// Lose is what a process does that is to be lost: it makes a wrapper with the fault,
// calls using with it, and works with it until the fault comes. What it returns says
// that none came.
type Lose func(fault string, using func(Counter)) []error

// Main is what TestMain calls first: in a process that is to be lost it does not
// return.
func Main(lose Lose) {
	fault, ok := os.LookupEnv(env)
	if !ok {
		return
	}
	errs := lose(fault, func(c Counter) {
		go func() {
			for c.Injected() == 0 {
				time.Sleep(time.Millisecond)
			}
			fmt.Println(injected)
		}()
	})
	fmt.Println("no fault came:", errs)
	os.Exit(0)
}

// Crashes has a process crash by a fault: Go names the signal.
func Crashes(t *testing.T, fault string) {
	t.Helper()
	p := start(t, fault) // which may have no time to say anything
	p.ends("SIGSEGV")
}

// Hangs has a process hang by a fault, in a function whose name begins with in.
func Hangs(t *testing.T, fault, in string) {
	t.Helper()
	p := start(t, fault)
	if p.said != injected+"\n" {
		t.Errorf("it says %q", p.said)
	}
	// Go writes down where it is.
	if err := p.cmd.Process.Signal(unix.SIGQUIT); err != nil {
		t.Error(err)
	}
	p.ends(in + "(")
}

// process is one that is to be lost.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	said   string
	stderr bytes.Buffer
}

func start(t *testing.T, fault string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), env+"="+fault)
	p.cmd.Stderr = &p.stderr
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.said, _ = bufio.NewReader(stdout).ReadString('\n')
	return p
}

// ends waits for the end, which no process of this kind reaches in good order.
func (p *process) ends(shows string) {
	p.t.Helper()
	if err := p.cmd.Wait(); err == nil || !strings.Contains(p.stderr.String(), shows) {
		p.t.Errorf("%v, and it says %s%s", err, p.said, &p.stderr)
	}
}
