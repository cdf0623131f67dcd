package local

import (
	"context"
	"errors"
	"net"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/launched"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/bootstrap/local/server"
	"github.com/ferrympi/ferry/framework"
)

func TestSingletons_HaveDifferentNamespaces(t *testing.T) {
	var ns [2]string
	for i := range ns {
		c, err := Component().Open(t.Context(), bootstrap.Env{Params: new(Params)})
		if err != nil {
			t.Fatal(err)
		}
		id := c.Identity()
		if !id.IsSingleton || !strings.HasPrefix(id.Proc.Namespace, "singleton-") {
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

// A process under a launcher is never silently a singleton.
func TestOpen_LauncherIsUnreachable_IsErrTransport(t *testing.T) {
	p := &Params{Address: "unix:" + t.TempDir() + "/gone", Namespace: "job", Size: 4}
	c, err := Component().Open(t.Context(), bootstrap.Env{Params: p})
	if c != nil || !errors.Is(err, framework.ErrTransport) || !strings.Contains(err.Error(), "gone") {
		t.Errorf("got %v, %v, want ErrTransport that names the address", c, err)
	}
}

func TestOpen_SilentLauncher_EndsWithContext(t *testing.T) {
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

func TestOpen_InvalidEnvironment_IsErrConfig(t *testing.T) {
	good := Params{Address: "unix:/x/y", Namespace: "job", Rank: 1, Size: 4}
	id, err := good.identity()
	if err != nil || id.Proc.Rank != 1 || id.Size != 4 || id.JobDir != "/x" {
		t.Fatalf("good environment: %+v, %v", id, err)
	}
	for want, change := range map[string]func(*Params){
		"ADDRESS":           func(p *Params) { p.Address = "tcp:host:1" },
		"want unix:/path":   func(p *Params) { p.Address = "unix:" },
		"NAMESPACE":         func(p *Params) { p.Namespace = "" },
		"SIZE":              func(p *Params) { p.Size = 0 },
		"has 4 processes":   func(p *Params) { p.Rank = 4 },
		"from rank 2 on":    func(p *Params) { p.First = 2 },
		"FIRST is -1":       func(p *Params) { p.First = -1 },
		"want 0 to 1048572": func(p *Params) { p.First = wire.MaxElements - 3 },
		"MOST is -1":        func(p *Params) { p.Most = -1 },
		"RANK is -1":        func(p *Params) { p.Rank = -1 },
	} {
		p := good
		change(&p)
		_, err := Component().Open(t.Context(), bootstrap.Env{Params: &p})
		if !errors.Is(err, framework.ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want ErrConfig with %q", p, err, want)
		}
	}
}

// bare unsets the variables that launchers of the tests may have set.
func bare(t *testing.T) {
	t.Helper()
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(e, "="); launched.NamesRank(name) {
			t.Setenv(name, "") // Restores the value after the test.
			os.Unsetenv(name)
		}
	}
}

// verdict checks the status of a verdict, and that its reason and hint contain all of want.
func verdict(t *testing.T, p *Params, status framework.Status, want ...string) {
	t.Helper()
	v := Component().Probe(t.Context(), p)
	if v.Status != status {
		t.Errorf("%+v: verdict %v", p, v)
	}
	for _, w := range want {
		if !strings.Contains(v.Why(), w) {
			t.Errorf("%+v: verdict %v has no %q", p, v, w)
		}
	}
}

// The error names the variable and the remedies.
func TestProbe_OtherLauncher_IsUnavailable(t *testing.T) {
	bare(t)
	verdict(t, new(Params), framework.StatusUsable)
	t.Setenv("SLURM_STEP_NUM_TASKS", "2")
	verdict(t, new(Params), framework.StatusUnavailable, "SLURM_STEP_NUM_TASKS is set", "ferry run", "srun --mpi=pmix", "srun --mpi=pmi2", wire.EnvSingleton+"=true")
	t.Setenv("PMI_SIZE", "2")
	verdict(t, new(Params), framework.StatusUnavailable, "PMI_SIZE is set", "ferry run", wire.EnvSingleton+"=true")
	verdict(t, &Params{Select: "local"}, framework.StatusUnavailable, "PMI_SIZE is set")
	verdict(t, &Params{Singleton: true}, framework.StatusUsable)
}

// All ranks have the address of ferry run.
func TestProbe_LauncherInsideFerryRun_IsUnavailable(t *testing.T) {
	bare(t)
	p := &Params{Address: "unix:/x"}
	verdict(t, p, framework.StatusUsable)
	for _, name := range []string{"PMI_FD", "PMI_PORT", "PMI_SIZE", "PMIX_RANK", "OMPI_COMM_WORLD_SIZE", "PALS_RANKID", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, "1")
			verdict(t, p, framework.StatusUnavailable, wire.EnvAddress, name+" is set", wire.EnvSingleton+"=true")
			verdict(t, &Params{Address: "unix:/x", Select: "local"}, framework.StatusUsable)
		})
	}
	t.Setenv("SLURM_JOB_ID", "7") // An allocation is no launcher.
	t.Setenv("SLURM_NTASKS", "4")
	verdict(t, p, framework.StatusUsable)
}

// The parameter applies whatever variables a launcher has left.
func TestProbe_SingletonParameter_Wins(t *testing.T) {
	t.Setenv("PMI_SIZE", "2")
	for _, p := range []*Params{{Singleton: true}, {Singleton: true, Address: "unix:/nowhere", Namespace: "job", Size: 4}} {
		verdict(t, p, framework.StatusUsable)
		c, err := Component().Open(t.Context(), bootstrap.Env{Params: p})
		if err != nil {
			t.Fatal(err)
		}
		if id := c.Identity(); !id.IsSingleton || id.Size != 1 {
			t.Errorf("identity %+v", id)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestEnviron_Names_MatchParameters(t *testing.T) {
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
	if wire.EnvAddress != "FERRY_BOOTSTRAP_LOCAL_ADDRESS" || wire.EnvSingleton != framework.EnvName("bootstrap.local.singleton") {
		t.Errorf("address is set by %s, and a singleton by %s", wire.EnvAddress, wire.EnvSingleton)
	}
}
