package pmi1

import (
	"context"
	"errors"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/pmi1/pmi1test"
	"github.com/ferrympi/ferry/framework"
)

func TestFindServer_InvalidEnvironment_IsAnError(t *testing.T) {
	for _, c := range []struct{ env, want string }{
		{"", "PMI_FD and PMI_PORT are not set"},
		{"PMI_FD=5 PMI_RANK=1 PMI_SIZE=4", ""},
		{"PMI_FD=5 PMI_RANK=1 PMI_SIZE=4 PMI_PORT=h:1 MPI_LOCALRANKID=one", ""},
		{"PMI_PORT=h:1 PMI_ID=0", ""},
		{"PMI_PORT=[::1]:1 PMI_ID=0", ""},
		{"PMI_FD=five PMI_RANK=1 PMI_SIZE=4", `PMI_FD="five"`},
		{"PMI_FD=-1 PMI_RANK=1 PMI_SIZE=4", `PMI_FD="-1"`},
		{"PMI_FD=5", "but not PMI_SIZE"},
		{"PMI_FD=5 PMI_SIZE=4", "but not PMI_RANK"},
		{"PMI_FD=5 PMI_SIZE=0 PMI_RANK=0", `PMI_SIZE="0"`},
		{"PMI_FD=5 PMI_SIZE=4 PMI_RANK=4", "PMI_RANK=4"},
		{"PMI_FD=5 PMI_SIZE=400000000 PMI_RANK=4", "PMI_SIZE=400000000"},
		{"PMI_PORT=h:1", "but not PMI_ID"},
		{"PMI_PORT=h:1 PMI_ID=x", `PMI_ID="x"`},
		{"PMI_PORT=h PMI_ID=1", `PMI_PORT="h"`},
		{"PMI_PORT=:1 PMI_ID=1", `PMI_PORT=":1"`},
		{"PMI_PORT=h:99999 PMI_ID=1", `PMI_PORT="h:99999"`},
		{"PMI_RANK=0", "PMI_RANK is set, but neither"},
		{"PMI_SIZE=2", "PMI_SIZE is set, but neither"},
	} {
		env := map[string]string{}
		for f := range strings.FieldsSeq(c.env) {
			k, v, _ := strings.Cut(f, "=")
			env[k] = v
		}
		p, err := findServer(new(Params), func(k string) (string, bool) { v, ok := env[k]; return v, ok })
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %+v, %v, want %q", c.env, p, err, c.want)
		}
	}
}

// unset unsets the variables that a launcher of the tests may have set.
func unset(t *testing.T) {
	t.Helper()
	for _, name := range []string{envFD, envRank, envSize, envPort, envID, envLocalRank, envLocalSize} {
		t.Setenv(name, "") // Restores the value after the test.
		os.Unsetenv(name)
	}
}

func probe(p *Params) framework.Verdict { return Component().Probe(context.Background(), p) }

func TestProbe_NoServer_IsUnavailable(t *testing.T) {
	unset(t)
	if v := probe(new(Params)); v.Status != framework.StatusUnavailable || !strings.Contains(v.Why(), "PMI_FD") || !strings.Contains(v.Why(), "mpiexec") {
		t.Errorf("verdict %v", v)
	}
	if v := probe(&Params{Port: "h:1"}); v.Status != framework.StatusUsable {
		t.Errorf("verdict with a port: %v", v)
	}
	if _, err := Component().Open(t.Context(), bootstrap.Env{Params: new(Params)}); !errors.Is(err, framework.ErrConfig) {
		t.Errorf("open: %v", err)
	}
}

// It is unknown which launcher is nearer, so the user must select one. A descriptor decides.
func TestProbe_PortBesidePMIx_IsAmbiguous(t *testing.T) {
	unset(t)
	t.Setenv(envPort, "host:1")
	t.Setenv(envID, "0")
	for name, value := range map[string]string{"PMIX_NAMESPACE": "job", "PMIX_RANK": "0", "PMIX_SERVER_URI2": "job.0;tcp4://127.0.0.1:9"} {
		if v := probe(new(Params)); v.Status != framework.StatusUsable {
			t.Errorf("with half of what PMIx sets: %v", v)
		}
		t.Setenv(name, value)
	}
	if v := probe(new(Params)); v.Status != framework.StatusUnavailable || !strings.Contains(v.Why(), "PMI_PORT and PMIX_NAMESPACE") || !strings.Contains(v.Why(), "FERRY_BOOTSTRAP=pmi1") {
		t.Errorf("verdict %v", v)
	}
	if v := probe(&Params{Select: "pmi1"}); v.Status != framework.StatusUsable {
		t.Errorf("verdict for the user's selection: %v", v)
	}
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0) // Without close-on-exec, as after exec.
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(ends[0])
	defer unix.Close(ends[1])
	t.Setenv(envFD, strconv.Itoa(ends[0]))
	t.Setenv(envRank, "0")
	t.Setenv(envSize, "2")
	// This process has made it and not its parent, so it may belong to a launcher around that of
	// the port.
	if v := probe(new(Params)); v.Status != framework.StatusUnavailable || !strings.Contains(v.Why(), "PMI_FD and PMI_PORT") || !strings.Contains(v.Why(), "env -u") {
		t.Errorf("verdict with a descriptor and a port: %v", v)
	}
	os.Unsetenv(envPort)
	if v := probe(new(Params)); v.Status != framework.StatusUsable {
		t.Errorf("verdict with a descriptor: %v", v)
	}
	t.Setenv("SLURM_TASK_PID", strconv.Itoa(os.Getpid()))
	if v := probe(new(Params)); v.Status != framework.StatusUsable {
		t.Errorf("verdict with a descriptor of srun's: %v", v)
	}
	os.Unsetenv(envFD)
	t.Setenv(envPort, "host:1")
	if v := probe(new(Params)); v.Status != framework.StatusUnavailable || !strings.Contains(v.Why(), "PMI_PORT") || !strings.Contains(v.Why(), "SLURM_TASK_PID") || !strings.Contains(v.Why(), "srun --mpi=pmi2") {
		t.Errorf("verdict with a port around srun: %v", v)
	}
	if v := probe(&Params{Singleton: true}); v.Status != framework.StatusUnavailable || !strings.Contains(v.Reason, "bootstrap.local.singleton") {
		t.Errorf("verdict for a process by itself: %v", v)
	}
}

// A process between has not passed the descriptor on, so its number is free or names another file.
func TestProbe_DescriptorOfParent_IsUnavailable(t *testing.T) {
	unset(t)
	t.Setenv(envRank, "0")
	t.Setenv(envSize, "2")
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	ours, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(ours)
	for fd, want := range map[int]string{1 << 20: "not an open descriptor", int(file.Fd()): "not a connection", ours: "not a connection"} {
		t.Setenv(envFD, strconv.Itoa(fd))
		if v := probe(new(Params)); v.Status != framework.StatusUnavailable || !strings.Contains(v.Reason, want) {
			t.Errorf("descriptor %d: %v, want %q", fd, v, want)
		}
		if _, err := Component().Open(t.Context(), bootstrap.Env{Params: new(Params)}); !errors.Is(err, framework.ErrTransport) || !strings.Contains(err.Error(), want) {
			t.Errorf("descriptor %d: open: %v", fd, err)
		}
	}
}

// Otherwise children of this process would hold the connection open, and could write to it.
func TestOpen_Descriptor_IsCloseOnExec(t *testing.T) {
	unset(t)
	s := server(t, pmi1test.Options{Mapping: "(vector,(0,1,4))"})
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	unix.CloseOnExec(pair[1])
	f := os.NewFile(uintptr(pair[1]), "server")
	conn, err := net.FileConn(f)
	f.Close()
	if err != nil {
		t.Fatal(err)
	}
	s.Serve(conn, 2)
	t.Setenv(envFD, strconv.Itoa(pair[0]))
	t.Setenv(envRank, "2")
	t.Setenv(envSize, "4")
	t.Setenv(envLocalRank, "2")
	t.Setenv(envLocalSize, "4")
	t.Cleanup(func() { forget(serverAddress{fd: pair[0]}) })
	if v := probe(new(Params)); v.Status != framework.StatusUsable {
		t.Errorf("verdict %v", v)
	}
	for range 2 { // The second one uses the state of the first.
		l, err := openLauncher(t.Context(), bootstrap.Env{Params: new(Params)})
		if err != nil {
			t.Fatal(err)
		}
		if id := l.Identity(); id.Proc != proc(2) || id.Size != 4 || id.LocalRank != 2 || id.LocalSize != 4 || id.IsSingleton {
			t.Errorf("identity %+v", id)
		}
		if flags, err := unix.FcntlInt(uintptr(pair[0]), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("descriptor %d would be inherited", pair[0])
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if v := probe(new(Params)); v.Status != framework.StatusUsable {
			t.Errorf("verdict after the goodbye: %v", v)
		}
	}
	if got := s.FinalizedRanks(); len(got) != 1 || got[0] != 2 {
		t.Errorf("finalized %v", got)
	}
}
