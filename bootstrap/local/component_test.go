package local

import (
	"context"
	"errors"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/bootstrap/local/server"
	"github.com/ferrympi/ferry/framework"
)

func TestSingletonsDiffer(t *testing.T) {
	var ns [2]string
	for i := range ns {
		c, err := Component().Open(t.Context(), bootstrap.Env{Params: new(Params)})
		if err != nil {
			t.Fatal(err)
		}
		id := c.Identity()
		if !id.Singleton || !strings.HasPrefix(id.Proc.Namespace, "singleton-") {
			t.Errorf("identity %+v", id)
		}
		ns[i] = id.Proc.Namespace
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if ns[0] == ns[1] {
		t.Errorf("two singletons are both %s", ns[0])
	}
}

// A program under a launcher is never a silent singleton.
func TestLauncherThatCannotBeReachedIsAnError(t *testing.T) {
	p := &Params{Address: "unix:" + t.TempDir() + "/gone", Namespace: "job", Size: 4}
	c, err := Component().Open(t.Context(), bootstrap.Env{Params: p})
	if c != nil || !errors.Is(err, framework.ErrTransport) || !strings.Contains(err.Error(), "gone") {
		t.Errorf("got %v, %v, want ErrTransport that names the address", c, err)
	}
}

func TestSilentLauncherEndsWithContext(t *testing.T) {
	l, err := net.Listen("unix", t.TempDir()+"/s")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	p := &Params{Address: "unix:" + l.Addr().String(), Namespace: "job", Size: 4}
	if _, err := Component().Open(ctx, bootstrap.Env{Params: p}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the context's cause", err)
	}
}

func TestBadEnvironmentIsAConfigError(t *testing.T) {
	good := Params{Address: "unix:/x/y", Namespace: "job", Rank: 1, Size: 4, Locals: "0-2"}
	id, err := good.identity()
	if err != nil || id.LocalRank != 1 || id.LocalSize != 3 || id.Dir != "/x" {
		t.Fatalf("good environment: %+v, %v", id, err)
	}
	for want, change := range map[string]func(*Params){
		"ADDRESS":               func(p *Params) { p.Address = "tcp:host:1" },
		"want unix:/path":       func(p *Params) { p.Address = "unix:" },
		"NAMESPACE":             func(p *Params) { p.Namespace = "" },
		"SIZE":                  func(p *Params) { p.Size = 0 },
		"has 4 processes":       func(p *Params) { p.Rank = 4 },
		"RANK is -1":            func(p *Params) { p.Rank = -1 },
		"own rank 1":            func(p *Params) { p.Locals = "0,2" },
		"rank 7 is beyond":      func(p *Params) { p.Locals = "0-3,7" },
		`"a" is not a rank`:     func(p *Params) { p.Locals = "a" },
		"runs backwards":        func(p *Params) { p.Locals = "3-1" },
		"over the limit of":     func(p *Params) { p.Locals = "0-4294967295" },
		"rank 1 is there twice": func(p *Params) { p.Locals = "1,0-2" },
	} {
		p := good
		change(&p)
		_, err := Component().Open(t.Context(), bootstrap.Env{Params: &p})
		if !errors.Is(err, framework.ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want ErrConfig with %q", p, err, want)
		}
	}
}

func TestOtherLaunchersMakeNoSingletons(t *testing.T) {
	for _, c := range []struct{ env, want string }{
		{"", ""},
		{"PMI_SIZE=4 PMI_FD=5", "PMI_SIZE"},
		{"PMI_SIZE=1 PMI_FD=5", ""},
		{"OMPI_COMM_WORLD_SIZE=2 PMIX_RANK=0", "OMPI_COMM_WORLD_SIZE"},
		{"OMPI_COMM_WORLD_SIZE=1 PMIX_RANK=0", ""},
		{"PMIX_RANK=0", "PMIX_RANK"},
		{"PMI_PORT=host:1", "PMI_PORT"},
		{"PMI_RANK=0", "PMI_RANK"},
		{"PMI_RANK=0 PMI_SIZE=1", ""},
		{"PALS_RANKID=0", "PALS_RANKID"},
		{"PALS_RANKID=3 PMI_SIZE=many", "PMI_SIZE"},
		{"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_RANK"},

		// srun without a PMI
		{"SLURM_PROCID=1 SLURM_NTASKS=4", "SLURM_PROCID"},
		{"SLURM_PROCID=0 SLURM_NTASKS=4", "SLURM_NTASKS"},
		{"SLURM_PROCID=0", "SLURM_PROCID"},
		{"SLURM_PROCID=0 SLURM_NTASKS=1", ""},
		{"SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_STEP_NUM_TASKS=4", "SLURM_STEP_NUM_TASKS"},
		{"SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_STEP_NUM_TASKS=1", ""}, // srun -n 1 in a job of 4
		{"SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NTASKS=4", "SLURM_NTASKS"},
		{"SLURM_JOB_ID=7 SLURM_STEP_NUM_TASKS=4 PMI_RANK=0 PMI_SIZE=1", ""}, // mpiexec inside srun
		{"SLURM_JOB_ID=7 SLURM_NTASKS=4", ""},                               // salloc's shell
		{"SLURM_JOB_ID=7 SLURM_NTASKS=4 SLURM_PROCID=0", ""},                // a batch script
		{"SLURM_JOB_ID=7 SLURM_NTASKS=4 SLURM_PROCID=2", "SLURM_PROCID"},
	} {
		env := map[string]string{}
		for f := range strings.FieldsSeq(c.env) {
			k, v, _ := strings.Cut(f, "=")
			env[k] = v
		}
		got := otherLauncher(func(k string) (string, bool) { v, ok := env[k]; return v, ok })
		if got != c.want {
			t.Errorf("%q: got %q, want %q", c.env, got, c.want)
		}
	}
	t.Setenv("PMI_SIZE", "2")
	if v := Component().Probe(t.Context(), new(Params)); v.Status != framework.StatusUnavailable || !strings.Contains(v.Hint, "PMI_SIZE") {
		t.Errorf("verdict %v", v)
	}
	if v := Component().Probe(t.Context(), &Params{Address: "unix:/x"}); v.Status != framework.StatusUsable {
		t.Errorf("verdict with a launcher of ferry's: %v", v)
	}
}

// The launcher's environment and the parameters are two spellings of one thing.
func TestEnvironNamesAreTheParameters(t *testing.T) {
	srv, err := server.New(server.Options{Size: 3, Namespace: "job"})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	if err := srv.Listen(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	p, err := paramsFrom(srv.Environ(2))
	if err != nil {
		t.Fatal(err)
	}
	if p.Token == "" || p.Rank != 2 || p.Size != 3 || p.Namespace != "job" || !strings.HasPrefix(p.Address, "unix:/") {
		t.Errorf("parameters %+v", p)
	}
	if f, _ := reflect.TypeFor[Params]().FieldByName("Token"); f.Tag.Get("secret") != "true" {
		t.Error("the token is not marked secret")
	}
	if wire.EnvAddress != "FERRY_BOOTSTRAP_LOCAL_ADDRESS" {
		t.Errorf("address is told in %s", wire.EnvAddress)
	}
}
