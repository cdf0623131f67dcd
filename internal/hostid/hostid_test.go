package hostid

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/ferrympi/ferry/internal/needs"
)

// TestMain prints a proof where the test runs itself in another name space.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "prove" {
		proof, err := Proof(os.Args[2])
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Print(proof)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestProcessesThatShareNothingAreNotTheSame: another directory, another name space; and
// a way to the same directory by another name is the same.
func TestProcessesThatShareNothingAreNotTheSame(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	link := other + "/link"
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	proof := func(paths ...string) string {
		p, err := Proof(paths...)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if proof(dir) != proof(link) {
		t.Error("a directory is not itself by another name")
	}
	if proof(dir) == proof(other) || proof(dir, other) == proof(dir) {
		t.Error("two directories are one")
	}
	if p, err := Proof(dir, dir+"/none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what is not there: %q, %v", p, err)
	}

	const net = "/proc/self/ns/net"
	elsewhere := func(flags uintptr) (string, error) {
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "prove", net)
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
		out, err := cmd.Output()
		return string(out), err
	}
	if p, err := elsewhere(0); err != nil || p != proof(net) {
		t.Errorf("another process here: %q, %v, and this one %q", p, err, proof(net))
	}
	p, err := elsewhere(syscall.CLONE_NEWNET)
	if errors.Is(err, syscall.EPERM) {
		needs.Missing(t, "a namespace of its own needs root: %v", err)
	}
	if err != nil || p == proof(net) {
		t.Errorf("in another name space: %q, %v", p, err)
	}
}
