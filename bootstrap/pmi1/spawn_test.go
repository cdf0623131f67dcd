package pmi1

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/mesh"
	"github.com/ferrympi/ferry/bootstrap/pmi1/pmi1test"
	"github.com/ferrympi/ferry/framework"
)

var (
	_ mesh.Spawner = (*launcher)(nil)
	_ mesh.Added   = (*launcher)(nil)
)

// entryOf returns an entry of the mesh bootstrap, that of rank 0 of s.
func entryOf(t *testing.T, s *pmi1test.Server) []byte {
	t.Helper()
	c, err := Component().Open(t.Context(), env(s, 0, time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p, ok := framework.As[interface{ Crash() error }](c)
		if err := c.Close(); err != nil || !ok || p.Crash() != nil {
			t.Errorf("close: %v", err)
		}
	})
	entry, ok, err := rank(t, s, 3).Find(t.Context(), proc(0))
	if err != nil || !ok {
		t.Fatalf("no entry: %v", err)
	}
	return entry
}

// request returns a request for two processes, which become ranks 4 and 5 of the job, and its
// hand-over.
func request(t *testing.T, s *pmi1test.Server) (mesh.SpawnRequest, mesh.HandOver) {
	t.Helper()
	h := mesh.HandOver{Namespace: kvsname, FirstRank: 4, Size: 2, MaxSize: 8, Entry: entryOf(t, s)}
	b, err := h.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return mesh.SpawnRequest{N: 2, Program: os.Args[0], Args: []string{"-to", "4 or more"}, Dir: t.TempDir(), Env: []string{"A=b"}, HandOver: b}, h
}

// added returns the launcher of a process of a spawned job.
func added(t *testing.T, job *pmi1test.Server, id int) (*launcher, error) {
	t.Helper()
	e := env(job, id, time.Minute)
	e.Params.(*Params).Spawned = true
	l, err := openLauncher(t.Context(), e)
	at := serverAddress{fd: -1, port: job.Port(), pmiID: id}
	t.Cleanup(func() {
		if err == nil {
			l.Close()
		}
		forget(at)
	})
	return l, err
}

func TestSpawn_AddedProcesses_JoinJobOfSpawner(t *testing.T) {
	for name, style := range styles {
		t.Run(name, func(t *testing.T) {
			s := server(t, pmi1test.Options{Style: style, Mapping: "(vector,(0,1,1))"})
			req, want := request(t, s)
			one := rank(t, s, 1)
			if err := one.Publish(t.Context(), []byte("one")); err != nil {
				t.Fatal(err)
			}
			if err := (directory{one}).Publish(t.Context(), "name", []byte("value")); err != nil {
				t.Fatal(err)
			}
			names := len(s.Names())
			spawner, _ := framework.As[mesh.Spawner](mesh.Launcher(exchangeLauncher{rank(t, s, 2), true}))
			if err := spawner.Spawn(t.Context(), req); err != nil {
				t.Fatal(err)
			}
			job := s.Spawned()[0]
			if got := (pmi1test.Command{Program: req.Program, Args: req.Args, Dir: req.Dir}); !reflect.DeepEqual(job.Command(), got) || job.Size() != 2 {
				t.Errorf("the job is %d of %+v", job.Size(), job.Command())
			}
			for id := range 2 {
				l, err := added(t, job, id)
				if err != nil {
					t.Fatal(err)
				}
				if h, ok := l.HandOver(); !ok || !reflect.DeepEqual(h, want) {
					t.Errorf("hand-over %+v, %t", h, ok)
				}
				got := l.Identity()
				identity := bootstrap.Identity{
					Proc: proc(uint32(4 + id)), FirstRank: 4, Size: 2, MaxSize: 8, LocalRank: id, LocalSize: 2, LocalRanks: []uint32{4, 5},
					Nodes: bootstrap.NodeMap{{First: 4, Count: 2}},
				}
				if !reflect.DeepEqual(got, identity) {
					t.Errorf("identity %+v", got)
				}
				if e, ok, err := l.Find(t.Context(), proc(1)); !ok || err != nil || string(e) != "one" {
					t.Errorf("find one of the first processes: %q, %t, %v", e, ok, err)
				}
				if v, ok, err := (directory{l}).Lookup(t.Context(), "name", false); !ok || err != nil || string(v) != "value" {
					t.Errorf("look up: %q, %t, %v", v, ok, err)
				}
				if err := l.Publish(t.Context(), []byte("added")); err != nil {
					t.Error(err)
				}
				if err := l.Publish(t.Context(), []byte("other")); !errors.Is(err, bootstrap.ErrPublished) {
					t.Errorf("publish another: %v", err)
				}
				if e, ok, err := l.Find(t.Context(), l.Identity().Proc); !ok || err != nil || string(e) != "added" {
					t.Errorf("find itself: %q, %t, %v", e, ok, err)
				}
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			}
			if got := job.FinalizedRanks(); !slices.Equal(got, []int{0, 1}) || len(job.Violations())+len(s.Violations()) > 0 || len(s.Names()) != names {
				t.Errorf("finalized %v, violations %q and %q, %d names", got, job.Violations(), s.Violations(), len(s.Names()))
			}
			if _, ok := one.HandOver(); ok {
				t.Error("one of the first processes has a hand-over")
			}
		})
	}
}

// The error quotes the launcher, and not the hand-over. A refusal leaves the connection as it is.
func TestSpawn_ServerFails_IsAnError(t *testing.T) {
	all := faults("spawn", "")
	all["spawn_result rc=-1 errmsg=no_slots"] = pmi1test.Fault{Cmd: "spawn", Response: "cmd=spawn_result rc=-1 errmsg=no_slots\n"}
	all["form of PMI-2"] = pmi1test.Fault{Cmd: "spawn", Response: "    29cmd=spawn-response;rc=-1;a=b;"}
	all["within 200ms"] = pmi1test.Fault{Cmd: "spawn", Response: "cmd=spawn_res"}
	all["launcher refused"] = pmi1test.Fault{Cmd: "spawn", Response: "cmd=spawn_result rc=\n"}
	req, _ := request(t, server(t, pmi1test.Options{}))
	for want, fault := range all {
		s := server(t, pmi1test.Options{})
		limit := patience(fault)
		if want == "within 200ms" {
			limit = 200 * time.Millisecond
		}
		l, err := openLauncher(t.Context(), env(s, 1, limit))
		if err != nil {
			t.Fatal(err)
		}
		s.InjectFault(fault)
		err = l.Spawn(t.Context(), req)
		if !errors.Is(err, framework.ErrTransport) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), hex.EncodeToString(req.HandOver)[:8]) {
			t.Errorf("%q: got %v", want, err)
		}
		refused := strings.Contains(want, "refused") || strings.Contains(want, "no_slots")
		if _, _, err := l.Find(t.Context(), proc(3)); (err == nil) != refused {
			t.Errorf("%q: the next request: %v", want, err)
		}
		if len(s.Spawned()) > 0 {
			t.Errorf("%q: a job was started", want)
		}
	}
}

// After such an error processes may still come, and mesh refuses them.
func TestSpawn_NoAnswerButStarted_IsErrTimeout(t *testing.T) {
	started := make(chan *pmi1test.Server, 1)
	s := server(t, pmi1test.Options{OnSpawn: func(job *pmi1test.Server) { started <- job }})
	req, _ := request(t, s)
	l, err := openLauncher(t.Context(), env(s, 1, 200*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	s.InjectFault(pmi1test.Fault{Cmd: "spawn", MustExecute: true})
	if err := l.Spawn(t.Context(), req); !errors.Is(err, framework.ErrTimeout) {
		t.Errorf("got %v", err)
	}
	if _, err := added(t, <-started, 1); err != nil {
		t.Errorf("a late process: %v", err)
	}
}

func TestSpawn_IsCanceled_ReturnsCause(t *testing.T) {
	s := server(t, pmi1test.Options{})
	req, _ := request(t, s)
	l := rank(t, s, 1)
	cause := errors.New("the user is impatient")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if err := l.Spawn(ctx, req); !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := l.Spawn(t.Context(), req); !errors.Is(err, framework.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if err := rank(t, s, 1).Spawn(t.Context(), req); !errors.Is(err, mesh.ErrLauncherLeft) {
		t.Errorf("after the goodbye: %v", err)
	}
}

func TestSpawn_ImpossibleRequest_IsNotSent(t *testing.T) {
	s := server(t, pmi1test.Options{})
	valid, _ := request(t, s)
	l := rank(t, s, 1)
	before := len(s.Requests())
	for want, change := range map[string]func(r *mesh.SpawnRequest){
		"at least 1":       func(r *mesh.SpawnRequest) { r.N = 0 },
		"\"a.out\" is not": func(r *mesh.SpawnRequest) { r.Program = "a.out" },
		"an executable":    func(r *mesh.SpawnRequest) { r.Program = "/nonexistent" },
		"\"/etc\" is not":  func(r *mesh.SpawnRequest) { r.Program = "/etc" },
		"not a directory":  func(r *mesh.SpawnRequest) { r.Dir = "/nonexistent" },
		"is empty":         func(r *mesh.SpawnRequest) { r.Args = []string{""} },
		"hand-over takes":  func(r *mesh.SpawnRequest) { r.HandOver = make([]byte, 40<<10) },
	} {
		r := valid
		change(&r)
		if err := l.Spawn(t.Context(), r); !errors.Is(err, framework.ErrUnsupported) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v", want, err)
		}
	}
	if after := s.Requests(); len(after) != before || len(s.Spawned()) > 0 {
		t.Errorf("sent %q", after[before:])
	}
}

// Slurm does not answer requests that it cannot execute while the step runs.
func TestSpawn_Slurm_NeedsOverlapAndAllocation(t *testing.T) {
	s := server(t, pmi1test.Options{Style: pmi1test.Slurm, KVSName: "12.0"})
	req, _ := request(t, server(t, pmi1test.Options{}))
	l := rank(t, s, 1)
	l.proc.address.slurmStep = "12.0"
	if l.LauncherName() != "srun --mpi=pmi2" || rank(t, s, 2).LauncherName() != "mpiexec.hydra" {
		t.Errorf("the launcher is %s", l.LauncherName())
	}
	before := len(s.Requests())
	t.Setenv(envSlurmOverlap, "") // Restores it after the test.
	os.Unsetenv(envSlurmOverlap)
	if err := l.Spawn(t.Context(), req); !errors.Is(err, framework.ErrUnsupported) || !strings.Contains(err.Error(), "SLURM_OVERLAP=1") {
		t.Errorf("got %v", err)
	}
	t.Setenv(envSlurmOverlap, "1")
	for _, c := range []struct{ cpus, perTask, want string }{
		{"1", "", "allocation of 1 "},
		{"2(x2),3", "4", "allocation of 1 "},
	} {
		t.Setenv(envSlurmCPUs, c.cpus)
		t.Setenv(envSlurmCPUsPerTask, c.perTask)
		if err := l.Spawn(t.Context(), req); !errors.Is(err, framework.ErrUnsupported) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v", c, err)
		}
	}
	if len(s.Requests()) != before {
		t.Error("a request was sent")
	}
	for _, c := range []struct{ cpus, perTask string }{{"2", ""}, {"1(x2)", "1"}, {"1,1", ""}, {"", ""}, {"many", "2"}, {"2", "many"}} {
		t.Setenv(envSlurmCPUs, c.cpus)
		t.Setenv(envSlurmCPUsPerTask, c.perTask)
		if err := l.Spawn(t.Context(), req); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if a, err := added(t, s.Spawned()[0], 1); err != nil || a.Identity().Proc != proc(5) {
		t.Errorf("%v", err)
	}
}

// The limits of the hand-over are those of mesh, so the smallest limits of a server suffice.
func TestSpawn_SmallestLimits_HandOverArrives(t *testing.T) {
	s := server(t, pmi1test.Options{})
	s.InjectFault(pmi1test.Fault{Cmd: "get_maxes", Response: "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=64\n"})
	l := rank(t, s, 1)
	req, _ := request(t, s)
	req.HandOver = make([]byte, mesh.MaxEntry+bootstrap.MaxName+64)
	if err := l.Spawn(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	job := s.Spawned()[0]
	for k, v := range job.Values() {
		if len(k) >= 64 || len(v) >= 64 {
			t.Errorf("%s=%s is over a limit", k, v)
		}
	}
	if _, err := added(t, job, 0); !errors.Is(err, framework.ErrConfig) || !strings.Contains(err.Error(), "hand-over") {
		t.Errorf("zeros are no hand-over: %v", err)
	}
}

// A program in C may spawn ferry programs, which are then a job of their own.
func TestOpen_SpawnedWithoutHandOver_IsJobOfItsOwn(t *testing.T) {
	s := server(t, pmi1test.Options{KVSName: "kvs_child", Size: 2})
	l, err := added(t, s, 1)
	if err != nil {
		t.Fatal(err)
	}
	if id := l.Identity(); id.Proc != (framework.Proc{Namespace: "kvs_child", Rank: 1}) || id.FirstRank != 0 || id.Size != 2 {
		t.Errorf("identity %+v", id)
	}
	if _, ok := l.HandOver(); ok {
		t.Error("it has a hand-over")
	}
}

func TestOpen_InvalidHandOver_IsErrConfig(t *testing.T) {
	first := server(t, pmi1test.Options{})
	req, h := request(t, first)
	valid := hex.EncodeToString(req.HandOver)
	h.FirstRank = 0
	b, err := h.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for want, value := range map[string]string{
		"was not put by a ferry program": "zz",
		"has started 3":                  valid,
		"ranks from 0":                   hex.EncodeToString(b),
		"hand-over":                      valid[:len(valid)-2],
		"segment 1 of 2 is missing":      "segments=2",
	} {
		s := server(t, pmi1test.Options{KVSName: "kvs_child", Size: 3})
		s.SetValue(handOverKey, value)
		_, err := added(t, s, 1)
		kind := framework.ErrConfig
		if strings.HasPrefix(value, "segments") {
			kind = framework.ErrTransport
		}
		if !errors.Is(err, kind) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20s: %v, want %q", value, err, want)
		}
	}
}

func TestOpenAdded_ExchangeByBarriers_IsUnsupported(t *testing.T) {
	s := server(t, pmi1test.Options{Style: pmi1test.HydraNew})
	req, _ := request(t, s)
	if err := rank(t, s, 1).Spawn(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	l, err := added(t, s.Spawned()[0], 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, how := range []string{"groups", "all"} {
		if _, err := openClient(t.Context(), bootstrap.Env{}, l, how); !errors.Is(err, framework.ErrUnsupported) || !strings.Contains(err.Error(), "set the exchange to meet") {
			t.Errorf("%s: %v", how, err)
		}
	}
}

func TestFindServer_Spawned_IsDetected(t *testing.T) {
	for text, want := range map[string]bool{
		"PMI_FD=5 PMI_RANK=1 PMI_SIZE=4 PMI_SPAWNED=1": true,
		"PMI_PORT=h:1 PMI_ID=0 PMI_SPAWNED=1":          true,
		"PMI_PORT=h:1 PMI_ID=0 PMI_SPAWNED=0":          false,
		"PMI_PORT=h:1 PMI_ID=0":                        false,
	} {
		lookup := func(name string) (string, bool) {
			for f := range strings.FieldsSeq(text) {
				if k, v, _ := strings.Cut(f, "="); k == name {
					return v, true
				}
			}
			return "", false
		}
		if p, err := findServer(new(Params), lookup); err != nil || p.isSpawned != want {
			t.Errorf("%s: %+v, %v", text, p, err)
		}
	}
}

// A text in the key space is a hand-over or ErrConfig. Encoded hand-overs survive the round trip.
func FuzzHandOver(f *testing.F) {
	f.Add("", []byte{})
	f.Add(fmt.Sprintf("%x", "\xa5\x01\x61n\x02\x04\x03\x02\x04\x04\x05\x40"), []byte("entry"))
	f.Fuzz(func(t *testing.T, text string, entry []byte) {
		h, err := decodeHandOver(text, 2)
		if err != nil && !errors.Is(err, framework.ErrConfig) {
			t.Errorf("%q: %v", text, err)
		}
		if err == nil {
			if id := jobIdentity("kvs", 1, 2, &h); id.FirstRank < 1 || int(id.Proc.Rank) != id.FirstRank+1 || id.Size != 2 || id.MaxSize < 2 || id.Proc.Namespace == "" {
				t.Errorf("%q: identity %+v", text, id)
			}
			b, err := h.Encode()
			if again, bad := decodeHandOver(hex.EncodeToString(b), 2); err != nil || bad != nil || !reflect.DeepEqual(again, h) {
				t.Errorf("%q: %+v, %v, %v", text, again, err, bad)
			}
		}
		b, err := mesh.HandOver{Namespace: "n", FirstRank: 4, Size: 2, MaxSize: 4, Entry: entry}.Encode()
		if err != nil {
			return
		}
		if _, err := decodeHandOver(hex.EncodeToString(b), 2); err != nil && !strings.Contains(err.Error(), "entry of rank 0") {
			t.Errorf("entry %x: %v", entry, err)
		}
	})
}
