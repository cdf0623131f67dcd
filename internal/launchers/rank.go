package launchers

import (
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

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/cmd/ferry/ferrytest"
	"github.com/ferrympi/ferry/internal/pmixc/pmixtest"
)

// Program is what one rank does. Its context ends before the job's time does. What it
// prints is its Rank's Output, and an error that it returns Rank.Err.
type Program func(ctx context.Context) error

// The environment of a job's processes.
const (
	envFerry   = "LAUNCHERS_FERRY"   // 1: this process is the command ferry
	envDir     = "LAUNCHERS_DIR"     // this process is a rank, and writes here
	envTimeout = "LAUNCHERS_TIMEOUT" // the job's
	envRank    = "LAUNCHERS_RANK"    // Launcher.Rank
	envMark    = "LAUNCHERS_MARK"
)

// What a rank writes into the directory, after its number. It does not go through the
// launcher, so that it is there after the launcher was killed, and lines don't mix.
const (
	fileOutput = ".out"
	fileReady  = ".ready"
	fileEnd    = ".end" // what Program returned, or nothing
)

// programs are Main's.
var programs map[string]Program

func isProgram(name string) bool { return name != Ferry && !strings.Contains(name, "/") }

// Main is for TestMain. In a process that a launcher has started it is the rank that the
// job names, else it runs the tests, and ends what they have shared.
func Main(m *testing.M, all map[string]Program) {
	if os.Getenv(envFerry) == "1" {
		ferrytest.Ferry()
	}
	programs = all
	if dir, ok := os.LookupEnv(envDir); ok {
		os.Exit(beRank(dir, os.Args[1], os.Args[1:]))
	}
	status := m.Run()
	pmixtest.Clean()
	err := closeShared()
	if err == nil && status == 0 {
		err = goleak.Find()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = max(status, 1)
	}
	os.Exit(status)
}

// Number is the rank of this process, as the launcher numbers it.
func Number() (int, error) {
	name := os.Getenv(envRank)
	n, err := strconv.Atoi(os.Getenv(name))
	if err != nil {
		return 0, fmt.Errorf("the launcher has set no %s: %w", name, err)
	}
	return n, nil
}

func beRank(dir, program string, line []string) (status int) {
	rank, err := Number()
	if err == nil {
		err = redirect(filepath.Join(dir, fmt.Sprint(rank, fileOutput)))
	}
	if err == nil && !isProgram(program) {
		err = become(program, line)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	end, status := "", 0
	if err := run(program); err != nil {
		end, status = err.Error(), 1
	}
	// Whole or not at all: the rank may be killed now.
	path := filepath.Join(dir, fmt.Sprint(rank, fileEnd))
	if err := errors.Join(os.WriteFile(path+".part", []byte(end), 0o600), os.Rename(path+".part", path)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return status
}

// redirect makes a new file the standard output and error. That the file is there already
// is an error: two processes have one number.
func redirect(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, fd := range []int{1, 2} {
		// The old one stays open: a launcher may take its end for the process's.
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD, 100); err != nil {
			return err
		}
		if err := unix.Dup3(int(f.Fd()), fd, 0); err != nil {
			return err
		}
	}
	return nil
}

// become makes this process that program.
func become(program string, line []string) error {
	if program == Ferry {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		program = self
		if err := os.Setenv(envFerry, "1"); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s: %w", program, syscall.Exec(program, line, os.Environ()))
}

func run(name string) error {
	program, ok := programs[name]
	if !ok {
		return fmt.Errorf("no program %q", name)
	}
	timeout, err := time.ParseDuration(os.Getenv(envTimeout))
	if err != nil {
		return err
	}
	const share = 0.8 // the rest is for saying what hangs
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(share*float64(timeout)))
	defer cancel()
	return errors.Join(program(ctx), goleak.Find())
}

// Ready tells Running.Await that this rank has come that far.
func Ready() error {
	rank, err := Number()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(os.Getenv(envDir), fmt.Sprint(rank, fileReady)), nil, 0o600)
}
