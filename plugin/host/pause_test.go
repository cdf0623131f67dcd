package host_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
)

// sleeps returns how often the threads of a process have slept, and whether all do now.
func sleeps(pid int) (times int, all bool) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	all = len(files) > 0
	for _, file := range files {
		text, _ := os.ReadFile(file)
		for line := range strings.Lines(string(text)) {
			var n int
			if _, err := fmt.Sscanf(line, "voluntary_ctxt_switches: %d", &n); err == nil {
				times += n
			}
			if strings.HasPrefix(line, "State:") && !strings.Contains(line, "(sleeping)") {
				all = false
			}
		}
	}
	return times, all
}

// A plugin that has slept must poll again when messages come, because waking it for each message takes ten times as long.
func TestPlugin_AfterPause_PollsAgain(t *testing.T) {
	m, env, u, err := open(t, entry("null"), io.Discard, nil)
	if err != nil {
		t.Fatal(err)
	}
	pid := child(t)
	limit := time.Now().Add(time.Minute)
	for calm := 0; calm < 3; calm++ {
		if _, all := sleeps(pid); !all {
			calm = 0
		}
		if time.Now().After(limit) {
			t.Fatal("the plugin does not sleep")
		}
		time.Sleep(time.Millisecond)
	}
	const frames = 4000
	e := env.Engine
	e.Lock()
	ep, err := m.Connect(framework.Peer{Incarnation: env.Self, Proc: env.Identity.Proc, Blob: m.Blob()})
	e.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	// On a busy machine it may not get its turn while it polls, and sleep with reason.
	for attempt := 1; ; attempt++ {
		before, _ := sleeps(pid)
		e.Lock()
		end := u.got + frames
		for sent := u.got; u.got < end && time.Now().Before(limit); m.Poll() {
			if sent == u.got && ep.Reserve(8, btl.RingStart) != nil {
				ep.Commit(8)
				sent++
			}
		}
		missing := end - u.got
		e.Unlock()
		after, _ := sleeps(pid)
		switch slept := after - before; {
		case missing > 0:
			t.Fatalf("%d of %d frames have not come back", missing, frames)
		case slept <= frames/2:
			t.Logf("the plugin slept %d times for %d messages", slept, frames)
			return
		case attempt == 5:
			t.Fatalf("the plugin slept %d times for %d messages", slept, frames)
		}
	}
}
