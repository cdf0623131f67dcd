package libfabric

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
)

const envSignals = "LIBFABRIC_TEST_SIGNALS"

func TestMain(m *testing.M) {
	if os.Getenv(envSignals) != "" {
		if err := afterLoad(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// afterLoad raises a signal and a fault after the library was loaded.
func afterLoad() (err error) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM)
	if _, err := Load("libfabric.so.1"); err != nil {
		return err
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		return err
	}
	<-c
	defer func() {
		if recover() == nil {
			err = errors.New("no panic")
		}
	}()
	var nowhere *int
	*nowhere = 1
	return nil
}

// A library of a provider may install signal handlers that end the process.
func TestLoad_LibraryInstallsHandlers_RestoresGoHandlers(t *testing.T) {
	if _, err := Load("libfabric.so.1"); err != nil {
		t.Skip(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), envSignals+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
