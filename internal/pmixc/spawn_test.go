package pmixc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/internal/pmixc/pmixtest"
)

// spawning starts two processes of "spawned", and waits until they have ended.
func spawning(ctx context.Context, l *Library, p Proc) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	dir := os.TempDir()
	limited, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	if os.Getenv("SPAWN_FAILS") == "" {
		limited = ctx
	}
	namespace, err := l.Spawn(limited, App{
		Program: self, Args: []string{"an argument", "", "more"}, Env: []string{pmixtest.AsProgram("spawned"), "SPAWN_TEXT=a b"}, Dir: dir, N: 2, IsIndependent: true,
	})
	fmt.Printf("spawned %v: %v\n", namespace != "" && namespace != p.Namespace, err)
	if errors.Is(err, context.DeadlineExceeded) {
		os.Exit(0) // Finalize waits for calls that have not returned.
	}
	if err != nil {
		return nil
	}
	return pmixtest.AwaitFlags(ctx, "spawned0", "spawned1")
}

// spawned prints the description of a spawned process.
func spawned(ctx context.Context, l *Library, p Proc) error {
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	size, err := l.Get(ctx, Proc{p.Namespace, Wildcard}, JobSize, 0)
	if err != nil {
		return err
	}
	fmt.Printf("process %d of %d: %q %q in temporary directory %t\n", p.Rank, size.Number, os.Args[1:], os.Getenv("SPAWN_TEXT"), dir == os.TempDir())
	return pmixtest.SetFlag(fmt.Sprint("spawned", p.Rank), "")
}

func TestSpawn_Processes_StartInNamespaceOfTheirOwn(t *testing.T) {
	library(t)
	for name, launcher := range map[string][]string{"server": pmixtest.Server(t, "-n", "1"), "mpirun": pmixtest.Mpirun(t, 1)} {
		t.Run(name, func(t *testing.T) {
			out := pmixtest.Run(t, launcher, "spawning")
			for _, want := range []string{"spawned true: <nil>", `process 0 of 2: ["an argument" "" "more"] "a b" in temporary directory true`, "process 1 of 2: "} {
				if !strings.Contains(out, want) {
					t.Errorf("want %s in\n%s", want, out)
				}
			}
		})
	}
}

// The errors have the names of libpmix for the codes.
func TestSpawn_ServerRefusesOrDoesNotAnswer_IsAnError(t *testing.T) {
	library(t)
	for how, want := range map[string]string{
		"none": "PMIx_Spawn: NOT-SUPPORTED (-47)", "refuse": "PMIx_Spawn: OUT-OF-RESOURCE (-29)", "fail": "PMIx_Spawn: ", "silent": "PMIx_Spawn has not returned: context deadline exceeded",
	} {
		t.Run(how, func(t *testing.T) {
			out, err := pmixtest.RunAny(t, pmixtest.Server(t, "-n", "1", "-spawn", how), "spawning", "SPAWN_FAILS=1")
			if !strings.Contains(out, "spawned false: "+want) || strings.Contains(out, "process ") {
				t.Errorf("want %s: %v\n%s", want, err, out)
			}
			t.Log(out)
		})
	}
}
