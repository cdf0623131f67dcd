package soak

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/bootstrap/local/server"
	"github.com/ferrympi/ferry/bootstrap/pmi1/pmi1test"
)

// envSteps is the folder with a file for each completed step of the test or of a rank.
const envSteps = "SOAK_STEPS"

// A members job runs under a PMI-1 server of the test, so that its bootstrap is bootstrap/mesh.
type membersJob struct {
	t *testing.T
	n int
	// Folder of envSteps.
	steps string
	cmds  []*exec.Cmd
	out   []bytes.Buffer
	ended []chan error
}

// startMembers starts a program as n ranks on nodes of equal size. start starts the command of a
// rank on its node. The end of the test kills the remaining ranks.
func startMembers(t *testing.T, n, nodes int, program string, start func(node int, cmd *exec.Cmd) error, env ...string) *membersJob {
	t.Helper()
	j := &membersJob{t: t, n: n, steps: t.TempDir(), cmds: make([]*exec.Cmd, n), out: make([]bytes.Buffer, n), ended: make([]chan error, n)}
	s, err := pmi1test.Start(pmi1test.Options{
		Size: n, KVSName: "soak-" + rand.Text(), Style: pmi1test.Slurm, Mapping: fmt.Sprintf("(vector,(0,%d,%d))", nodes, n/nodes),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	t.Cleanup(j.kill)
	dirs := make([]string, nodes)
	for i := range dirs {
		dirs[i] = segments(t)
	}
	for rank := range n {
		node := rank / (n / nodes)
		if err := j.start(s, rank, program, func(cmd *exec.Cmd) error { return start(node, cmd) },
			append(env[:len(env):len(env)], "FERRY_BTL_SHM_DIR="+dirs[node])); err != nil {
			t.Fatalf("rank %d: %v", rank, err)
		}
	}
	return j
}

// start starts one rank with a connection to the server as its PMI_FD.
func (j *membersJob) start(s *pmi1test.Server, rank int, program string, start func(*exec.Cmd) error, env []string) error {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	theirs, ours := os.NewFile(uintptr(fds[0]), "pmi"), os.NewFile(uintptr(fds[1]), "pmi server")
	defer theirs.Close()
	conn, err := net.FileConn(ours)
	ours.Close()
	if err != nil {
		return err
	}
	s.Serve(conn, rank)
	cmd := exec.Command(os.Args[0])
	for _, v := range server.InheritedEnviron(os.Environ()) {
		if !strings.HasPrefix(v, "FERRY_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(append(cmd.Env, "FERRY_CONFIG="+os.DevNull, "LOCALTEST_PROGRAM="+program, "LOCALTEST_TIMEOUT=30m", envSteps+"="+j.steps,
		"PMI_FD=3", fmt.Sprint("PMI_RANK=", rank), fmt.Sprint("PMI_SIZE=", j.n)), env...)
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.Stdout, cmd.Stderr = &j.out[rank], &j.out[rank]
	if err := start(cmd); err != nil {
		return err
	}
	ended := make(chan error, 1)
	j.cmds[rank], j.ended[rank] = cmd, ended
	go func() { ended <- cmd.Wait() }()
	return nil
}

// kill kills the remaining ranks.
func (j *membersJob) kill() {
	for rank, cmd := range j.cmds {
		if cmd != nil && j.ended[rank] != nil {
			_ = cmd.Process.Kill() // It may have ended.
			<-j.ended[rank]
			j.t.Logf("rank %d was killed: %s", rank, j.out[rank].String())
		}
	}
}

// wait waits for the end of all ranks, and fails the test for each that has failed.
func (j *membersJob) wait() {
	j.t.Helper()
	for rank, ended := range j.ended {
		if ended == nil {
			continue // It was awaited before.
		}
		err := <-ended
		j.ended[rank] = nil
		if err != nil {
			j.t.Errorf("rank %d: %v\n%s", rank, err, j.out[rank].String())
		}
	}
}

// complete completes a step of the test.
func (j *membersJob) complete(step string) {
	j.t.Helper()
	if err := os.WriteFile(filepath.Join(j.steps, step), nil, 0o600); err != nil {
		j.t.Fatal(err)
	}
}

// await waits until the first n ranks have completed a step, and returns the times. It fails the
// test if a rank ends before.
func (j *membersJob) await(step string, n int) []time.Time {
	j.t.Helper()
	times := make([]time.Time, n)
	for rank := range n {
		for {
			if i, err := os.Stat(filepath.Join(j.steps, fmt.Sprint(step, ".", rank))); err == nil {
				times[rank] = i.ModTime()
				break
			}
			select {
			case err := <-j.ended[rank]:
				j.ended[rank] = nil
				j.t.Fatalf("rank %d ended before %q: %v\n%s", rank, step, err, j.out[rank].String())
			case <-j.t.Context().Done():
				j.t.Fatal(j.t.Context().Err())
			case <-time.After(time.Millisecond):
			}
		}
	}
	return times
}

// completeStep completes a step of a rank with a text. The file appears atomically.
func completeStep(rank int, step, text string) error {
	path := filepath.Join(os.Getenv(envSteps), fmt.Sprint(step, ".", rank))
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// isComplete reports whether the test has completed a step.
func isComplete(step string) bool { return exists(filepath.Join(os.Getenv(envSteps), step)) }

// startHere starts a command on this machine.
func startHere(_ int, cmd *exec.Cmd) error { return cmd.Start() }
