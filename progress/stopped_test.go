package progress

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/framework"
)

// panicking is a source that panics when it is polled.
type panicking struct{ armed bool }

func (p *panicking) Poll() int {
	if p.armed {
		panic("original")
	}
	return 0
}

// The environment variable stopScenario makes a child process of TestStopped run that scenario.
const stopScenario = "PROGRESS_TEST_STOP"

// stops are programs in which a panic leaves the lock held.
var stops = map[string]func(){
	"deferred call": func() {
		e, _ := pollsAndPanics()
		defer report(e)
		e.Lock()
		_ = e.Wait(context.Background(), &Completion{}, nil)
	},
	"deferred call of a rank": func() {
		p := New(Options{})
		e := p.NewRank(&panicking{armed: true}, &PollWord{})
		defer report(e)
		e.Lock()
		_ = e.Wait(context.Background(), &Completion{}, nil)
	},
	"rank whose process was polled": func() {
		p, _ := pollsAndPanics()
		e := p.NewRank(&idleSource{}, &PollWord{})
		defer report(e)
		e.Lock()
		_ = e.Wait(context.Background(), &Completion{}, nil)
	},
	"lock in another goroutine": func() {
		e, _ := pollsAndPanics()
		ended := make(chan struct{})
		defer func() {
			go func() {
				defer close(ended)
				e.Lock()
			}()
			<-ended
		}()
		e.Lock()
		_ = e.Wait(context.Background(), &Completion{}, nil)
	},
	"parked wait in another goroutine": func() {
		e := New(Options{})
		s := &panicking{}
		e.Add(s)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			e.Lock()
			_ = e.Wait(context.Background(), &Completion{}, nil)
		}()
		for parked := false; !parked; runtime.Gosched() {
			e.Lock()
			parked = e.parkedWaits == 1
			e.Unlock()
		}
		defer func() { <-ended }()
		e.Lock()
		s.armed = true
		_ = e.Wait(context.Background(), &Completion{}, nil)
	},
}

func pollsAndPanics() (*Engine, *panicking) {
	e := New(Options{Spin: time.Hour}) // The caller polls, and not the progress goroutine.
	s := &panicking{}
	e.Lock()
	s.armed = true
	e.sources = append(e.sources, s)
	e.Unlock()
	return e, s
}

// report writes whether Check found that the engine has stopped.
func report(e *Engine) {
	err := e.Check()
	var stopped *StoppedError
	if errors.As(err, &stopped) && errors.Is(err, framework.ErrClosed) {
		_, _ = os.Stderr.WriteString("stopped\n")
	}
}

func TestStopped_PanicUnderTheLock_EndsTheProgram(t *testing.T) {
	if name := os.Getenv(stopScenario); name != "" {
		go stops[name]() // testing's own deferred calls are not above it
		select {}
	}
	for name := range stops {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestStopped_PanicUnderTheLock_EndsTheProgram$")
			cmd.Env = append(os.Environ(), stopScenario+"="+name)
			out, err := cmd.CombinedOutput()
			if ctx.Err() != nil {
				t.Fatalf("it hangs: %s", out)
			}
			if cmd.ProcessState.ExitCode() != 2 {
				t.Errorf("%v: %s", err, out)
			}
			if isDeferred := !strings.Contains(name, "another"); isDeferred && !(strings.Contains(string(out), "stopped\n") && strings.Contains(string(out), "original")) {
				t.Errorf("the deferred Check did not return, or the panic is missing: %s", out)
			}
			if !strings.Contains(string(out), "progress.(*panicking).Poll") {
				t.Errorf("no stack shows where the panic began: %s", out)
			}
		})
	}
}

// A function that ferry calls without the lock
// may panic or end its goroutine, and its deferred calls may wait long for a lock.
func TestStopped_PanicOfTheProgram_StopsNoEngine(t *testing.T) {
	for function, holds := range map[string]bool{
		modulePrefix + "mpi.(*ThreadComm).Run.func1":        false,
		modulePrefix + "progress_test.TestX":                false,
		modulePrefix + "pml/ob1_test.TestX.func2":           false,
		modulePrefix + "pml/ob1.(*comm).Send":               true,
		modulePrefix + "progress.(*Engine).Wait(0xc000120)": true,
		"main.main":             false,
		"runtime.sigpanic":      false,
		"example.com/pml.Panic": false,
	} {
		if holdsLock(function) != holds {
			t.Errorf("%s: holdsLock is not %t", function, holds)
		}
	}
	var l lock
	l.Lock()
	for sleeps := range 2 * sleepsPerStacks {
		l.search(sleeps + 1)
	}
	if err := l.stoppedErr.Load(); err != nil {
		t.Error(err)
	}
}

// A search of all stacks stops the program, and allocates 2 MiB.
func TestLock_ShortWait_SearchesNoStacks(t *testing.T) {
	var l lock
	l.Lock()
	sleeps := 0
	allocated := testing.AllocsPerRun(1, func() {
		l.lockUntil(func() bool { sleeps++; return sleeps%(sleepsPerOwnStack-1) == 0 })
	})
	if allocated > 0 {
		t.Errorf("%d sleeps make %v allocations", sleepsPerOwnStack-1, allocated)
	}
}
