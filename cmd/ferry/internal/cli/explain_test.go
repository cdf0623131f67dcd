package cli_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/mpi"
)

// chain sends a message to the next rank. Each rank leaves after the one before it has left.
func chain() {
	ctx := context.Background()
	session, err := mpi.OpenSession(ctx)
	check(err)
	world, err := session.Group(ctx, "mpi://WORLD")
	check(err)
	comm, err := mpi.CommFromGroup(ctx, world, "org.example.chain")
	check(err)
	rank, b := comm.Rank(), make([]byte, 1)
	if rank > 0 {
		_, err := comm.Recv(ctx, b, rank-1, 0)
		check(err)
	}
	if rank+1 < comm.Size() {
		check(comm.Send(ctx, b, rank+1, 0))
	}
	file := func(what string, rank int) string {
		return filepath.Join(os.Getenv("CHAIN_DIR"), fmt.Sprint(what, ".", rank))
	}
	await := func(what string, rank int) {
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			if _, err := os.Stat(file(what, rank)); err == nil {
				return
			} else if !errors.Is(err, fs.ErrNotExist) || time.Now().After(deadline) {
				check(fmt.Errorf("rank %d is not %s: %w", rank, what, err))
			}
		}
	}
	check(os.WriteFile(file("here", rank), nil, 0o600))
	for i := range comm.Size() { // all have looked how they reach the others
		await("here", i)
	}
	if rank > 0 {
		await("gone", rank-1)
	}
	check(comm.Close())
	check(session.Close())
	check(os.WriteFile(file("gone", rank), nil, 0o600))
}

// The shared memory of ranks that left earlier is gone, which must not change the transport of their messages.
func TestExplain_PeersThatHaveLeft_KeepTheirTransport(t *testing.T) {
	ferry, err := exec.LookPath("ferry")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(ferry, "run", "-n", "4", "--timeout", "2m", "--explain", "chain")
	cmd.Env = append(os.Environ(), "CHAIN_DIR="+t.TempDir(), "XDG_RUNTIME_DIR="+t.TempDir(), "COLUMNS=1000")
	out, err := cmd.CombinedOutput()
	text := string(out)
	if err != nil || !strings.Contains(text, "\n0-3 x 0-3     ob1  shm ") {
		t.Errorf("%v\n%s", err, text)
	}
	for _, wrong := range []string{" tcp  ", "no transport", "no path to the peer", "no such file"} {
		if pairs, _, _ := strings.Cut(text, "FRAMEWORK"); strings.Contains(pairs, wrong) {
			t.Errorf("%q in\n%s", wrong, pairs)
		}
	}
}
