package pmix

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/needs"
	"github.com/ferrympi/ferry/internal/pmixc"
)

// defaults are the default parameters.
var defaults = &Params{Library: pmixc.Soname}

// under sets the variables of a process that a PMIx server has started.
func under(t *testing.T, uri string) {
	t.Helper()
	t.Setenv("PMIX_NAMESPACE", "job")
	t.Setenv("PMIX_RANK", "0")
	t.Setenv("PMIX_VERSION", "4.2.2")
	for _, name := range []string{"PMIX_SERVER_URI41", "PMIX_SERVER_URI4", "PMIX_SERVER_URI3"} {
		t.Setenv(name, "pmix-server.1;"+uri)
	}
}

// fake compiles testdata/fake.c, whose calls hang until the test ends.
func fake(t *testing.T, version string) string {
	t.Helper()
	if err := pmixc.Built(); err != nil {
		t.Skip(err)
	}
	needs.Program(t, "gcc", "gcc and libc6-dev")
	lib := filepath.Join(t.TempDir(), pmixc.Soname)
	flag := filepath.Join(t.TempDir(), "hang")
	if err := os.WriteFile(flag, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	text, err := exec.Command("gcc", "-shared", "-fPIC", `-DVERSION="`+version+`"`, `-DFLAG="`+flag+`"`, "-o", lib, "testdata/fake.c").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return lib
}

// probe checks the status of the verdict, its reason, and its hint.
func probe(t *testing.T, p *Params, status framework.Status, want, hint string) {
	t.Helper()
	v := Component().Probe(t.Context(), p)
	if v.Status != status || !strings.Contains(v.Reason, want) || !strings.Contains(v.Hint, hint) {
		t.Errorf("got %v (%s), want %v with %q, %q", v, v.Hint, status, want, hint)
	}
}

func TestProbe_NoServerInEnvironment_IsUnavailable(t *testing.T) {
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(e, "="); strings.HasPrefix(name, "PMIX_") {
			t.Setenv(name, "")
			os.Unsetenv(name)
		}
	}
	probe(t, defaults, framework.StatusUnavailable, "PMIX_NAMESPACE is not set", "srun --mpi=pmix")
	t.Setenv("PMIX_RANK", "3")
	probe(t, defaults, framework.StatusUnavailable, "missing: PMIX_NAMESPACE, PMIX_SERVER_URI*", "mpirun")
}

// It is unknown which launcher is nearer, so the user must select one. An open PMI_FD decides,
// which pmi1 checks.
func TestProbe_PMIxBesidePort_IsAmbiguous(t *testing.T) {
	if err := pmixc.Built(); err != nil {
		t.Skip(err)
	}
	under(t, "tcp4://127.0.0.1:9")
	lib := fake(t, "OpenPMIx 4.1.0")
	t.Setenv("PMI_PORT", "host:1")
	probe(t, &Params{Library: lib}, framework.StatusUnavailable, "PMI_PORT and PMIX_NAMESPACE", "FERRY_BOOTSTRAP=pmix")
	probe(t, &Params{Library: lib, Select: "pmix"}, framework.StatusUsable, "", "")
	t.Setenv("PMI_FD", "3")
	probe(t, &Params{Library: lib}, framework.StatusUsable, "", "")
	os.Unsetenv("PMI_FD")
	t.Setenv("SLURM_TASK_PID", strconv.Itoa(os.Getpid()))
	probe(t, &Params{Library: lib}, framework.StatusUnavailable, "PMIX_NAMESPACE comes from a launcher around srun", "srun --mpi=pmix")
	t.Setenv("PMIX_NAMESPACE", "slurm.pmix.7.0")
	probe(t, &Params{Library: lib}, framework.StatusUsable, "", "")
	probe(t, &Params{Library: lib, Singleton: true}, framework.StatusUnavailable, "bootstrap.local.singleton", "")
}

// The library is missing, too old, or of another interface.
func TestProbe_UnusableLibrary_IsNamed(t *testing.T) {
	if err := pmixc.Built(); err != nil {
		t.Skip(err)
	}
	under(t, "tcp4://127.0.0.1:9")
	probe(t, &Params{Library: "/nonexistent/libpmix.so.2"}, framework.StatusUnavailable, "/nonexistent/libpmix.so.2 can't be loaded", "libpmix2")
	probe(t, &Params{Library: "libc.so.6"}, framework.StatusUnavailable, "it has no PMIx_", "bootstrap.pmix.library")
	probe(t, &Params{Library: fake(t, "OpenPMIx 3.2.3")}, framework.StatusUnavailable, "3.2.3\", too old: ferry needs 4.1.0", "4.1.0 or newer")
	probe(t, &Params{Library: fake(t, "no version")}, framework.StatusUnavailable, "too old", "4.1.0 or newer")
	probe(t, &Params{Library: fake(t, "OpenPMIx 4.1.0")}, framework.StatusUsable, "", "")
}

// The error names the other version, which is not usable.
func TestProbe_OtherSoname_IsNamed(t *testing.T) {
	if err := pmixc.Built(); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	saved := libraryDirs
	libraryDirs = []string{dir}
	defer func() { libraryDirs = saved }()
	if err := os.WriteFile(filepath.Join(dir, "libnosuchpmix.so.1"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := load(t.Context(), "libnosuchpmix.so.2")
	if err == nil || !strings.Contains(err.Error(), "libnosuchpmix.so.2 can't be loaded") || !strings.Contains(err.Error(), "there is "+dir+"/libnosuchpmix.so.1, with another interface") {
		t.Error(err)
	}
}

// The variables come first, and a file is used as it is.
func TestLibrary_VariablesOfPMIx_AreSearched(t *testing.T) {
	dir, prefix := t.TempDir(), t.TempDir()
	saved := libraryDirs
	libraryDirs = nil
	defer func() { libraryDirs = saved }()
	for _, file := range []string{dir + "/libpmix.so.2", prefix + "/lib64/libpmix.so.2"} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	env := map[string]string{"PMIX_LIBDIR": dir, "PMIX_PREFIX": prefix}
	got := candidatePaths("libpmix.so.2", func(name string) string { return env[name] })
	if want := []string{dir + "/libpmix.so.2", prefix + "/lib64/libpmix.so.2", "libpmix.so.2"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := candidatePaths("./libpmix.so.2", os.Getenv); !slices.Equal(got, []string{"./libpmix.so.2"}) {
		t.Error(got)
	}
}

// libpmix may never return.
func TestLoad_Hangs_EndsWithContext(t *testing.T) {
	p := &Params{Library: fake(t, "OpenPMIx 4.2.2")}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	under(t, "tcp4://"+l.Addr().String())
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(20*time.Millisecond, func() { cancel(enough) })
	c, err := Component().Open(ctx, bootstrap.Env{Params: p})
	if c != nil || !errors.Is(err, enough) || !strings.Contains(err.Error(), "PMIx_Init has not returned") {
		t.Errorf("got %v, %v", c, err)
	}
	// The first one may still succeed.
	if _, err := Component().Open(t.Context(), bootstrap.Env{Params: p}); !errors.Is(err, framework.ErrTransport) || !strings.Contains(err.Error(), "initialize libpmix only once") {
		t.Errorf("once more: %v", err)
	}
	initErr = nil
}

// libpmix itself would take a second to find no listener. The error has a remedy, and a later Open
// may succeed.
func TestOpen_NoServer_IsAnErrorAtOnce(t *testing.T) {
	p := &Params{Library: fake(t, "OpenPMIx 4.2.2")} // Its calls hang.
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := "tcp4://" + l.Addr().String()
	if err := checkReachable(t.Context(), at); err != nil {
		t.Errorf("a server that is there: %v", err)
	}
	l.Close()
	under(t, at)
	for range 2 {
		c, err := Component().Open(t.Context(), bootstrap.Env{Params: p})
		if c != nil || !errors.Is(err, framework.ErrTransport) {
			t.Fatalf("got %v, %v", c, err)
		}
		for _, want := range []string{at, "connection refused", "PMIX_NAMESPACE is set", "srun --mpi=pmix", "FERRY_BOOTSTRAP_LOCAL_SINGLETON=true"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%v has no %q", err, want)
			}
		}
	}
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(enough)
	if err := checkReachable(ctx, at); !errors.Is(err, enough) {
		t.Errorf("a caller who has had enough: %v", err)
	}
	for _, other := range []string{"", "usock:/tmp/x", "tcp4://host:1", "tcp4://127.0.0.1"} {
		if err := checkReachable(t.Context(), other); err != nil {
			t.Errorf("what only libpmix knows, %q: %v", other, err)
		}
	}
	if !isLocalAddr(netip.MustParseAddr("127.0.0.1")) || isLocalAddr(netip.MustParseAddr("192.0.2.1")) {
		t.Error("this host is not itself")
	}
}

func TestIdentity_AnswersOfServer_AreChecked(t *testing.T) {
	me := pmixc.Proc{Namespace: "job", Rank: 2}
	size := pmixc.Value{Kind: pmixc.KindNumber, Number: 8}
	id, err := identity(me, size, "5, 2,0")
	if err != nil || !slices.Equal(id.LocalRanks, []uint32{0, 2, 5}) || id.LocalRank != 1 || id.LocalSize != 3 ||
		id.Size != 8 || id.Proc != (framework.Proc{Namespace: "job", Rank: 2}) || id.IsSingleton {
		t.Errorf("%+v, %v", id, err)
	}
	// The processes of this node are unknown.
	if id, err = identity(me, size, ""); err != nil || id.LocalSize != 0 || id.LocalRanks != nil {
		t.Errorf("%+v, %v", id, err)
	}
	for want, c := range map[string]struct {
		me    pmixc.Proc
		size  pmixc.Value
		peers string
	}{
		"no namespace":                           {pmixc.Proc{Rank: 2}, size, "2"},
		"job has 0 processes":                    {me, pmixc.Value{Kind: pmixc.KindNumber}, "2"},
		"job has -4 processes":                   {me, pmixc.Value{Kind: pmixc.KindNumber, Number: -4}, "2"},
		"(type 3)":                               {me, pmixc.Value{Kind: pmixc.KindText, Type: 3}, "2"},
		"this is rank 9":                         {pmixc.Proc{Namespace: "job", Rank: 9}, size, "2"},
		"not this process, rank 2":               {me, size, "0,1"},
		`"8" is not a rank of 8`:                 {me, size, "2,8"},
		`"" is not a rank of 8`:                  {me, size, "2,"},
		`"0-3" is not a rank of 8`:               {me, size, "0-3"},
		"one is listed twice":                    {me, size, "2,3,2"},
		`"-1" is not a rank`:                     {me, size, "2,-1"},
		`"4294967296" is not a rank`:             {me, size, "2,4294967296"},
		strings.Repeat("x", 100) + `"... are on`: {me, size, strings.Repeat("x", 5000)},
	} {
		if _, err := identity(c.me, c.size, c.peers); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// A list from a server is parsed or refused.
func FuzzLocalPeers(f *testing.F) {
	for _, s := range []string{"0,1,2,3", "2", "", ",", "0-3", "1,1", " 1", "99999999999999999999", "7,\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, list string) {
		const size = 8
		all, err := parseLocalPeers(list, size)
		if err != nil {
			if len(err.Error()) > 2000 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		if len(all) == 0 || len(all) > size || !slices.IsSorted(all) || all[len(all)-1] >= size {
			t.Errorf("%q: %v", list, all)
		}
	})
}
