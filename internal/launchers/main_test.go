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
		"alone":     alone,
		"deserted":  deserted,
		"environ":   environ,
		"fail":      fail,
		"first":     first,
		"grow":      grow,
		"kit":       kit,
		"open":      openAndClose,
		"outsiders": outsiders,
		"pair":      pair,
		"roots":     roots,
		"recover":   recovers,
		"reopen":    reopen,
		"revoke":    revokeAndExit,
		"sequence":  runSequence,
		"sleep":     sleep,
		"steady":    steady,
		"survive":   survive,
		"two":       two,
		"wire-up":   wireUp,
	})
}

// environ prints the variables that this process was started with.
func environ(context.Context) error {
	for _, v := range os.Environ() {
		fmt.Println(v)
	}
	return nil
}

// fail is an error on rank 1.
func fail(context.Context) error {
	if n, err := Number(); n == 1 || err != nil {
		return errors.Join(errors.New("rank 1 has had enough"), err)
	}
	return nil
}

// sleep waits for nothing.
func sleep(ctx context.Context) error {
	if err := Ready(); err != nil {
		return err
	}
	<-ctx.Done()
	return errors.New("nobody has ended me")
}

// steady opens and closes a pipe in each round.
func steady(ctx context.Context) error {
	return Steady(ctx, 1000, func(context.Context, int) error {
		r, w, err := os.Pipe()
		return errors.Join(err, r.Close(), w.Close())
	})
}

// kept is what grow does not give back.
var kept struct {
	files  []*os.File
	memory [][]byte
}

// grow keeps something of each round, and is an error if that is not noticed.
func grow(ctx context.Context) error {
	if err := Steady(ctx, 100, func(context.Context, int) error {
		f, err := os.Open(os.DevNull)
		kept.files = append(kept.files, f)
		return err
	}); err == nil {
		return errors.New("a descriptor a round passes for steady")
	}
	if err := Steady(ctx, 100, func(context.Context, int) error {
		kept.memory = append(kept.memory, make([]byte, 4096))
		return nil
	}); err == nil && !raceDetector {
		return errors.New("a page a round passes for steady")
	}
	return nil
}
