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

// Program is the code of one rank. Its context ends before the job's timeout. Its output is
// Rank.Output and its error is Rank.Err.
type Program func(ctx context.Context) error

// Environment of a job's processes.
const (
	envFerry   = "LAUNCHERS_FERRY"   // Makes this process the command ferry if 1.
	envDir     = "LAUNCHERS_DIR"     // Makes this process a rank that writes its files there.
	envProgram = "LAUNCHERS_PROGRAM" // Program of the job.
	envTimeout = "LAUNCHERS_TIMEOUT" // Timeout of the job.
	envRank    = "LAUNCHERS_RANK"    // Launcher.Rank.
	envMark    = "LAUNCHERS_MARK"
)

// Suffixes of the files of a rank. They bypass the launcher, so that they exist after its death and
// lines do not interleave.
const (
	fileOutput = ".out"
	fileReady  = ".ready"
	fileEnd    = ".end" // Error of Program, empty for nil.
)

// programs are those of Main.
var programs map[string]Program

func isProgram(name string) bool { return name != Ferry && !strings.Contains(name, "/") }

// Main is for TestMain. In a process of a launcher it runs the program of the job. Otherwise it
// runs the tests and then ends shared daemons.
func Main(m *testing.M, all map[string]Program) {
	if os.Getenv(envFerry) == "1" {
		ferrytest.Ferry()
	}
	programs = all
	if dir, ok := os.LookupEnv(envDir); ok {
		line := os.Args[1:]
		if isAdded() && os.Getenv(envProgram) == Ferry { // The arguments are those of the command ferry.
			line = append([]string{Ferry}, line...)
		}
		os.Exit(runRank(dir, line[0], line))
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

// Number returns the rank of this process in the launcher's numbering.
func Number() (int, error) {
	name := os.Getenv(envRank)
	n, err := strconv.Atoi(os.Getenv(name))
	if err != nil {
		return 0, fmt.Errorf("the launcher has set no %s: %w", name, err)
	}
	return n, nil
}

func runRank(dir, program string, line []string) (status int) {
	name, err := fileName()
	if err == nil {
		err = redirect(filepath.Join(dir, name+fileOutput))
	}
	if err == nil && !isProgram(program) {
		err = execProgram(program, line)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	end, status := "", 0
	if err := runProgram(program); err != nil {
		end, status = err.Error(), 1
	}
	// The rename is atomic, because the rank may be killed at any time.
	path := filepath.Join(dir, name+fileEnd)
	if err := errors.Join(os.WriteFile(path+".part", []byte(end), 0o600), os.Rename(path+".part", path)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return status
}

// addedPrefix begins the names of the files of added processes. Their numbers at the launcher are
// not unique.
const addedPrefix = "added-"

// isAdded reports whether the launcher has added this process to a running job.
func isAdded() bool {
	_, ok := os.LookupEnv("FERRY_BOOTSTRAP_PMIX_HAND_OVER")
	return ok || os.Getenv("PMI_SPAWNED") == "1"
}

// fileName returns the name of the files of this process without their suffixes.
func fileName() (string, error) {
	if isAdded() {
		return fmt.Sprint(addedPrefix, os.Getpid()), nil
	}
	n, err := Number()
	return strconv.Itoa(n), err
}

// redirect makes a new file the standard output and error. An existing file is an error, because
// two processes have the same rank.
func redirect(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, fd := range []int{1, 2} {
		// The old descriptor stays open, because a launcher may take its end for that of the
		// process.
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD, 100); err != nil {
			return err
		}
		if err := unix.Dup3(int(f.Fd()), fd, 0); err != nil {
			return err
		}
	}
	return nil
}

// execProgram replaces this process by the program.
func execProgram(program string, line []string) error {
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

func runProgram(name string) error {
	program, ok := programs[name]
	if !ok {
		return fmt.Errorf("no program %q", name)
	}
	timeout, err := time.ParseDuration(os.Getenv(envTimeout))
	if err != nil {
		return err
	}
	const share = 0.8 // The rest of the time is for diagnostics.
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(share*float64(timeout)))
	defer cancel()
	return errors.Join(program(ctx), goleak.Find())
}

// Ready notifies Running.Await.
func Ready() error {
	rank, err := Number()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(os.Getenv(envDir), fmt.Sprint(rank, fileReady)), nil, 0o600)
}
