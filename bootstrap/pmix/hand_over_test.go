package pmix

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/launched"
	"github.com/ferrympi/ferry/bootstrap/mesh"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/pmixc"
)

// Processes that inherit the variable are no added processes.
func TestHandOver_OfAnotherProcess_IsIgnored(t *testing.T) {
	const server = "dvm.servers"
	text := handOverText{server: server, parent: "first", handOver: []byte("no hand-over")}.String()
	added := pmixc.Proc{Namespace: "second"}
	for _, c := range []struct {
		text, server string
		me           pmixc.Proc
		ok           bool
		err          string
	}{
		{"", server, added, false, ""},
		{text, "another.servers", added, false, ""},
		{text, server, pmixc.Proc{Namespace: "first"}, false, ""},
		{text, server, added, false, "hand-over"},
		{"xyz", server, added, false, "1 parts: want 3"},
		{"a..!", server, added, false, "part 1: illegal base64"},
	} {
		_, ok, err := handOverFor(c.text, c.server, c.me)
		if ok != c.ok || (err == nil) != (c.err == "") || err != nil && (!errors.Is(err, framework.ErrConfig) || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%q of %s in %s: %t, %v", c.text, c.server, c.me.Namespace, ok, err)
		}
	}
	if name := framework.EnvName("bootstrap.pmix.hand_over"); name != launched.PMIxHandOver {
		t.Errorf("the parameter is set by %s", name)
	}
}

func TestJoinJob_RanksFollowThoseOfJob(t *testing.T) {
	h := mesh.HandOver{Namespace: "job", FirstRank: 5, Size: 3, MaxSize: 20}
	at := bootstrap.Identity{Proc: framework.Proc{Namespace: "second", Rank: 2}, Size: 3, LocalRank: 1, LocalSize: 2, LocalRanks: []uint32{0, 2}}
	id, err := joinJob(at, h)
	if err != nil || id.Proc != (framework.Proc{Namespace: "job", Rank: 7}) || id.FirstRank != 5 || id.Size != 3 || id.MaxSize != 20 ||
		id.LocalRank != 1 || id.LocalSize != 2 || !slices.Equal(id.LocalRanks, []uint32{5, 7}) {
		t.Fatalf("%+v, %v", id, err)
	}
	at.Size = 4
	if _, err := joinJob(at, h); !errors.Is(err, framework.ErrConfig) || !strings.Contains(err.Error(), "started 4 processes, and the hand-over is for 3; remove FERRY_BOOTSTRAP_PMIX_HAND_OVER") {
		t.Error(err)
	}
	p := process{self: pmixc.Proc{Namespace: "second", Rank: 2}, id: id, isAdded: true, spawnedJobs: []spawnedJob{{"third", 8, 1}}}
	for _, c := range []struct {
		at      pmixc.Proc
		want    framework.Proc
		isOfJob bool
		isOwn   bool
	}{
		{pmixc.Proc{Namespace: "second", Rank: 1}, framework.Proc{Namespace: "job", Rank: 6}, true, true},
		{pmixc.Proc{Namespace: "third", Rank: 0}, framework.Proc{Namespace: "job", Rank: 8}, true, false},
		{pmixc.Proc{Namespace: "job", Rank: 1}, framework.Proc{Namespace: "job", Rank: 1}, true, false},
		{pmixc.Proc{Namespace: "third", Rank: 1}, framework.Proc{Namespace: "third", Rank: 1}, false, false},
		{pmixc.Proc{Namespace: "other", Rank: 1}, framework.Proc{Namespace: "other", Rank: 1}, false, false},
	} {
		got, isOfJob := p.jobProc(c.at)
		if got != c.want || isOfJob != c.isOfJob {
			t.Errorf("%v is %v, %t", c.at, got, isOfJob)
		}
		if back, ok := p.serverProc(got); ok != c.isOwn || ok && back != c.at {
			t.Errorf("%v is %v, %t", got, back, ok)
		}
	}
}

// The server loses connections of processes, too.
func TestEvent_LostConnection_IsThatOfThisProcessOrOfServer(t *testing.T) {
	for proc, want := range map[pmixc.Proc]bool{
		{Namespace: "second", Rank: 2}:  true,
		{Namespace: "second", Rank: 1}:  false,
		{Namespace: "third", Rank: 0}:   false,
		{Namespace: "job", Rank: 1}:     false,
		{Namespace: "servers", Rank: 0}: true,
		{}:                              true,
	} {
		p := process{
			self: pmixc.Proc{Namespace: "second", Rank: 2}, isAdded: true, spawnedJobs: []spawnedJob{{"third", 8, 1}},
			id: bootstrap.Identity{Proc: framework.Proc{Namespace: "job", Rank: 7}, FirstRank: 5, Size: 3},
		}
		if e, ok := p.recordEvent(pmixc.Event{Code: pmixc.LostConnection, Proc: proc}); ok != want || ok && e.Kind != bootstrap.ServerLost {
			t.Errorf("%v: %+v, %t", proc, e, ok)
		}
	}
}

// The namespace of added processes is unknown until Spawn returns.
func TestEvent_AddedProcessDiesDuringSpawn_IsDeliveredAfterIt(t *testing.T) {
	death := func(namespace string, rank uint32) pmixc.Event {
		return pmixc.Event{Code: pmixc.ProcAborted, Proc: pmixc.Proc{Namespace: namespace, Rank: rank}}
	}
	installed(t)
	lib, err := load(t.Context(), pmixc.Soname)
	if err != nil {
		t.Fatal(err)
	}
	var got []framework.Proc
	p := &process{
		self: pmixc.Proc{Namespace: "job"}, id: bootstrap.Identity{Proc: framework.Proc{Namespace: "job"}, Size: 2},
		failures: map[framework.Proc]string{}, lib: lib,
	}
	p.setWatcher(func(e bootstrap.Event) { got = append(got, e.Proc) })
	record := func(e pmixc.Event) {
		t.Helper()
		if _, ok := p.recordEvent(e); ok {
			t.Errorf("%+v is of the job", e)
		}
	}
	record(death("first", 0)) // Before a call.
	p.beginSpawn()
	p.beginSpawn()
	record(death("first", 1))
	record(death("second", 0))
	record(death("second", 9))
	p.endSpawn(spawnedJob{"first", 4, 2}, true)
	if want := []framework.Proc{{Namespace: "job", Rank: 5}}; !slices.Equal(got, want) {
		t.Errorf("after the first call: %v, want %v", got, want)
	}
	p.endSpawn(spawnedJob{"second", 6, 1}, true)
	if want := []framework.Proc{{Namespace: "job", Rank: 5}, {Namespace: "job", Rank: 6}}; !slices.Equal(got, want) {
		t.Errorf("after both calls: %v, want %v", got, want)
	}
	p.beginSpawn()
	record(death("third", 0))
	p.endSpawn(spawnedJob{}, false)
	if record(death("third", 1)); len(p.unclaimedDeaths) > 0 {
		t.Errorf("%+v stay after the calls", p.unclaimedDeaths)
	}
}

func TestOpenAdded_ExchangeByFences_IsUnsupported(t *testing.T) {
	id := bootstrap.Identity{Proc: framework.Proc{Namespace: "job", Rank: 1}, FirstRank: 1, Size: 1}
	l := &launcher{process: &process{isAdded: true, id: id}}
	for _, how := range []string{"groups", "all"} {
		if _, err := openClient(t.Context(), bootstrap.Env{}, l, how); !errors.Is(err, framework.ErrUnsupported) || !strings.Contains(err.Error(), "set the exchange to meet") {
			t.Errorf("%s: %v", how, err)
		}
	}
}

func TestServerNamespace_IsPartOfAddress(t *testing.T) {
	for uri, want := range map[string]string{
		"922484736.0;tcp4://127.0.0.1:50975":              "922484736",
		"prterun-host.example-17@0.3;tcp4://127.0.0.1:50": "prterun-host.example-17@0",
		"server;tcp4://127.0.0.1:50":                      "server",
		"tcp4://127.0.0.1:50":                             "",
		"":                                                "",
	} {
		if got := serverNamespace(func(string) string { return uri }); got != want {
			t.Errorf("%q: %q, want %q", uri, got, want)
		}
	}
}

func TestLauncherName_IsThatOfEnvironment(t *testing.T) {
	for env, want := range map[string]string{
		"PMIX_NAMESPACE=slurm.pmix.7.0":         "srun --mpi=pmix",
		"OMPI_COMM_WORLD_SIZE=2":                "mpirun",
		"OMPI_COMM_WORLD_SIZE=2 PRTE_LAUNCHED=": "mpirun",
		"PRTE_LAUNCHED=1 PMIX_NAMESPACE=a@1":    "prterun",
		"PMIX_NAMESPACE=pmixtest-1":             "the launcher with PMIx",
	} {
		lookup := func(name string) (string, bool) {
			for v := range strings.FieldsSeq(env) {
				if k, value, _ := strings.Cut(v, "="); k == name {
					return value, true
				}
			}
			return "", false
		}
		if got := launcherName(lookup); got != want {
			t.Errorf("%s: %s, want %s", env, got, want)
		}
	}
}

// A variable of the environment is decoded or refused.
func FuzzHandOver(f *testing.F) {
	f.Add(handOverText{server: "servers", parent: "first", handOver: []byte{0xa0}}.String())
	f.Add("..")
	f.Add("c2VydmVycw..!")
	f.Fuzz(func(t *testing.T, text string) {
		parsed, err := parseHandOver(text)
		if err == nil {
			again, err := parseHandOver(parsed.String())
			if err != nil || again.server != parsed.server || again.parent != parsed.parent || !bytes.Equal(again.handOver, parsed.handOver) {
				t.Errorf("%q becomes %+v, %v", text, again, err)
			}
		}
		h, ok, err := handOverFor(text, "servers", pmixc.Proc{Namespace: "second"})
		if ok && (err != nil || h.Size < 1 || h.FirstRank < 1) {
			t.Errorf("%q: %+v, %v", text, h, err)
		}
	})
}
