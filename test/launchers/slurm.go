package launchers

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/internal/fork"
	"github.com/ferrympi/ferry/internal/needs"
)

var slurmNeeds = []Need{{"slurmctld", "slurmctld"}, {"slurmd", "slurmd"}, {"srun", "slurm-client"}, {"munged", "munge"}}

// slurm is a Slurm installation whose only node is this machine. All its files are in one
// directory. It uses no control groups, no system services, and no names except that of this host,
// which need not resolve.
type slurm struct {
	dir     string
	thread  *fork.Thread
	daemons []*daemon
	// startupTimes has the startup times of the daemons.
	startupTimes []string
}

func (s *slurm) conf() string { return s.dir + "/slurm.conf" }

// mark is in the environment of the daemons, of all their descendants, and of srun.
func (s *slurm) mark() string { return "SLURM_CONF=" + s.conf() }

// startSlurm starts the daemons, which die with this process. Close ends them and their
// descendants. It retries if another process takes a port first.
func startSlurm() (s *slurm, err error) {
	for range 5 {
		if s, err = startSlurmOnce(); err == nil || !strings.Contains(err.Error(), "Address already in use") {
			break
		}
	}
	return s, err
}

func startSlurmOnce() (*slurm, error) {
	dir, err := os.MkdirTemp("", "ferry-slurm") // Short, because it contains a socket.
	if err != nil {
		return nil, err
	}
	s := &slurm{dir: dir, thread: fork.New()}
	if err := s.start(); err != nil {
		return nil, errors.Join(fmt.Errorf("slurm: %w", err), s.Close())
	}
	return s, nil
}

func (s *slurm) start() error {
	if err := os.Chmod(s.dir, 0o755); err != nil { // munged requires it.
		return err
	}
	for _, dir := range []string{"state", "spool", "tmp"} {
		if err := os.Mkdir(filepath.Join(s.dir, dir), 0o755); err != nil {
			return err
		}
	}
	key := make([]byte, 128)
	_, _ = rand.Read(key) // It never fails.
	if err := os.WriteFile(s.dir+"/munge.key", key, 0o600); err != nil {
		return err
	}
	conf, err := s.configuration()
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.conf(), []byte(conf), 0o644); err != nil {
		return err
	}
	// Without a named plugin, slurmd requires control groups.
	if err := os.WriteFile(s.dir+"/cgroup.conf", []byte("CgroupPlugin=cgroup/v1\nCgroupMountpoint="+s.dir+"/cgroup\n"), 0o644); err != nil {
		return err
	}
	if err := s.serve("munged", []string{"--foreground", "--force", "--key-file=" + s.dir + "/munge.key", "--socket=" + s.socket(),
		"--pid-file=" + s.dir + "/munged.pid", "--log-file=" + s.dir + "/munged.log", "--seed-file=" + s.dir + "/munge.seed"},
		func(context.Context) bool { _, err := os.Stat(s.socket()); return err == nil }); err != nil {
		return err
	}
	if err := s.serve("slurmctld", []string{"-D"}, s.printsText("is UP", "scontrol", "ping")); err != nil {
		return err
	}
	return s.serve("slurmd", []string{"-D"}, s.printsText("idle", "sinfo", "--noheader", "--format=%T"))
}

func (s *slurm) socket() string { return s.dir + "/munge.sock" }

// configuration returns slurm.conf. The node has enough processors for all ranks of the tests.
func (s *slurm) configuration() (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", err
	}
	host, _, _ = strings.Cut(host, ".") // As in the daemons.
	me, err := user.Current()
	if err != nil {
		return "", err
	}
	ctld, d, err := freePorts()
	if err != nil {
		return "", err
	}
	return strings.NewReplacer("HOST", host, "DIR", s.dir, "USER", me.Username, "PORT1", fmt.Sprint(ctld), "PORT2", fmt.Sprint(d)).Replace(`
ClusterName=ferry
SlurmctldHost=HOST(127.0.0.1)
SlurmUser=USER
SlurmdUser=USER
SlurmctldPort=PORT1
SlurmdPort=PORT2
AuthType=auth/munge
AuthInfo=socket=DIR/munge.sock
CryptoType=crypto/munge
StateSaveLocation=DIR/state
SlurmdSpoolDir=DIR/spool
TmpFS=DIR/tmp
SlurmctldPidFile=DIR/slurmctld.pid
SlurmdPidFile=DIR/slurmd.pid
SlurmctldLogFile=DIR/slurmctld.log
SlurmdLogFile=DIR/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
NodeName=HOST NodeAddr=127.0.0.1 CPUs=64 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
`), nil
}

// freePorts returns two unused ports.
func freePorts() (a, b int, err error) {
	l, err := net.Listen("tcp4", ":0")
	if err != nil {
		return 0, 0, err
	}
	defer l.Close()
	m, err := net.Listen("tcp4", ":0")
	if err != nil {
		return 0, 0, err
	}
	defer m.Close()
	return l.Addr().(*net.TCPAddr).Port, m.Addr().(*net.TCPAddr).Port, nil
}

// A daemon is a process that serves until it is killed.
type daemon struct{ ended chan struct{} }

// begin starts a process of Slurm.
func (s *slurm) begin(cmd *exec.Cmd) (*daemon, error) {
	cmd.Env, cmd.Dir = s.environ(), s.dir
	if err := s.thread.Start(cmd); err != nil {
		return nil, err
	}
	d := &daemon{ended: make(chan struct{})}
	s.daemons = append(s.daemons, d)
	go func() {
		_ = cmd.Wait() // Its output has the reason.
		close(d.ended)
	}()
	return d, nil
}

// serve starts a daemon and waits until it is ready.
func (s *slurm) serve(name string, args []string, ready func(context.Context) bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	begun := time.Now()
	said, err := os.Create(filepath.Join(s.dir, name+".out"))
	if err != nil {
		return err
	}
	defer said.Close()
	cmd := exec.Command(Need{Program: name}.path(), args...)
	cmd.Stdout, cmd.Stderr = said, said
	d, err := s.begin(cmd)
	if err != nil {
		return err
	}
	for !ready(ctx) {
		select {
		case <-time.After(pollInterval):
			continue
		case <-ctx.Done():
		case <-d.ended:
		}
		text, _ := os.ReadFile(said.Name())
		return fmt.Errorf("%s is not ready after %v:\n%s", name, time.Since(begun).Round(time.Millisecond), bytes.TrimSpace(text))
	}
	s.startupTimes = append(s.startupTimes, fmt.Sprint(name, " ", time.Since(begun).Round(time.Millisecond)))
	return nil
}

func (s *slurm) environ() []string {
	return append(plainEnviron(), s.mark(), "TMPDIR="+s.dir+"/tmp")
}

// printsText returns a function that reports whether the output of a command contains text.
func (s *slurm) printsText(text, command string, args ...string) func(context.Context) bool {
	return func(ctx context.Context) bool {
		cmd := exec.CommandContext(ctx, command, args...)
		cmd.Env = s.environ()
		out, _ := cmd.Output() // It fails until the daemon is ready.
		return bytes.Contains(out, []byte(text))
	}
}

// Close kills the daemons and all jobs, because their state is not needed. It returns an error if a
// process remains.
func (s *slurm) Close() error {
	left := killAll(s.mark())
	if len(left) > 0 {
		return fmt.Errorf("slurm: cannot kill %v", describe(left))
	}
	for _, d := range s.daemons {
		<-d.ended
	}
	s.thread.Close()
	return os.RemoveAll(s.dir)
}

// shared is the Slurm of all tests of this process.
var shared struct {
	*slurm
	err error
}

func sharedSlurm(t testing.TB) *slurm {
	t.Helper()
	if shared.slurm == nil && shared.err == nil {
		shared.slurm, shared.err = startSlurm()
		if shared.err == nil {
			t.Logf("slurm is ready: %s", strings.Join(shared.startupTimes, ", "))
		}
	}
	if shared.err != nil {
		needs.Missing(t, "%v", shared.err)
	}
	return shared.slurm
}

// closeShared ends shared daemons.
func closeShared() error {
	if shared.slurm == nil {
		return nil
	}
	return shared.Close()
}
