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

// TestMain prints a proof in the child process, which runs in another namespace.
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

func TestProof_OtherDirectoryOrNamespace_Differs(t *testing.T) {
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
		t.Error("a directory and a link to it differ")
	}
	if proof(dir) == proof(other) || proof(dir, other) == proof(dir) {
		t.Error("two directories have equal proofs")
	}
	if p, err := Proof(dir, dir+"/none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing path: %q, %v", p, err)
	}

	const net = "/proc/self/ns/net"
	proofOfChild := func(flags uintptr) (string, error) {
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "prove", net)
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
		out, err := cmd.Output()
		return string(out), err
	}
	if p, err := proofOfChild(0); err != nil || p != proof(net) {
		t.Errorf("child in this namespace: %q, %v; this process: %q", p, err, proof(net))
	}
	p, err := proofOfChild(syscall.CLONE_NEWNET)
	if errors.Is(err, syscall.EPERM) {
		needs.Missing(t, "a new namespace needs root: %v", err)
	}
	if err != nil || p == proof(net) {
		t.Errorf("child in another namespace: %q, %v", p, err)
	}
}
