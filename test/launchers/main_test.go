package launchers

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

var full = flag.Bool("full", false, "run the slow cases as often as the fast ones")

func TestMain(m *testing.M) {
	if name, ok := os.LookupEnv(envHost); ok {
		if err := unix.Sethostname([]byte(name)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	Main(m, map[string]Program{
		"adds-and-removes": addsAndRemoves,
		"alone":            alone,
		"cannot-grow":      cannotGrow,
		"deserted":         groupWithEndedMember,
		"environ":          environ,
		"fail":             fail,
		"first":            firstCommunicators,
		"grow":             grow,
		"kit":              kit,
		"loses-added":      losesAdded,
		"open":             openAndClose,
		"outsiders":        outsiders,
		"pair":             pair,
		"roots":            roots,
		"recover":          recovers,
		"reopen":           reopen,
		"revoke":           revokeAndExit,
		"sequence":         runSequence,
		"sleep":            sleep,
		"splits":           splits,
		"steady":           steady,
		"survive":          survive,
		"two":              two,
		"wire-up":          wireUp,
	})
}

// environ prints the initial environment variables of this process.
func environ(context.Context) error {
	for _, v := range os.Environ() {
		fmt.Println(v)
	}
	return nil
}

// fail returns an error on rank 1.
func fail(context.Context) error {
	if n, err := Number(); n == 1 || err != nil {
		return errors.Join(errors.New("rank 1 fails"), err)
	}
	return nil
}

// sleep is idle until its context ends.
func sleep(ctx context.Context) error {
	if err := Ready(); err != nil {
		return err
	}
	<-ctx.Done()
	return errors.New("timeout: the process was not ended")
}

// steady opens and closes a pipe in each round.
func steady(ctx context.Context) error {
	return Steady(ctx, 1000, func(context.Context, int) error {
		r, w, err := os.Pipe()
		return errors.Join(err, r.Close(), w.Close())
	})
}

// leaked are the leaked resources of grow.
var leaked struct {
	files  []*os.File
	memory [][]byte
}

// grow leaks something in each round, and returns an error if Steady accepts that.
func grow(ctx context.Context) error {
	if err := Steady(ctx, 100, func(context.Context, int) error {
		f, err := os.Open(os.DevNull)
		leaked.files = append(leaked.files, f)
		return err
	}); err == nil {
		return errors.New("Steady accepts a descriptor per round")
	}
	if err := Steady(ctx, 100, func(context.Context, int) error {
		leaked.memory = append(leaked.memory, make([]byte, 4096))
		return nil
	}); err == nil && !raceDetector {
		return errors.New("Steady accepts a page per round")
	}
	return nil
}
