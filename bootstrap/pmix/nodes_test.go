package pmix

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/pmixc"
	"github.com/ferrympi/ferry/internal/pmixc/pmixtest"
)

// cluster is a resolver. Its ranks are those of namespace job, by node.
type cluster struct {
	names string
	ranks map[string][]uint32
	err   error
}

func (c cluster) Nodes(context.Context, string) (string, error) { return c.names, c.err }

func (c cluster) Peers(_ context.Context, node, _ string) ([]pmixc.Proc, error) {
	var procs []pmixc.Proc
	for _, r := range c.ranks[node] {
		procs = append(procs, pmixc.Proc{Namespace: "job", Rank: r})
	}
	return procs, nil
}

// member is rank 1 of 4, which shares its node with rank 3.
var member = bootstrap.Identity{Proc: framework.Proc{Namespace: "job", Rank: 1}, Size: 4, LocalSize: 2, LocalRank: 0, LocalRanks: []uint32{1, 3}}

func TestResolve_ServerHasAMap_IsInRuns(t *testing.T) {
	c := cluster{names: "b,a", ranks: map[string][]uint32{"a": {3, 1}, "b": {2, 0}}}
	m, err := resolveBy(t.Context(), c, member)
	if err != nil || fmt.Sprint(m) != "[{0 1 0} {1 1 1} {2 1 0} {3 1 1}]" {
		t.Errorf("got %v, %v", m, err)
	}
	id := member
	id.LocalRanks, id.LocalSize = nil, 0
	if again, err := resolveBy(t.Context(), c, id); err != nil || !slices.Equal(again, m) {
		t.Errorf("without the processes of this node: %v, %v", again, err)
	}
}

func TestResolve_MapIsBroken_IsNoMap(t *testing.T) {
	for want, c := range map[string]cluster{
		`nodes "" of 4`:                     {},
		`nodes "a," of 4`:                   {names: "a,"},
		"nodes \"a,b,c,d,e\" of 4":          {names: "a,b,c,d,e"},
		"rank 0 is missing":                 {names: "a,b"},
		"rank 2 is missing":                 {names: "a,b", ranks: map[string][]uint32{"a": {1, 3}, "b": {0}}},
		"rank 1 is listed twice":            {names: "a,b", ranks: map[string][]uint32{"a": {1, 3}, "b": {0, 1}}},
		"more than 4 processes ":            {names: "a,b", ranks: map[string][]uint32{"a": {1, 3}, "b": {0, 2, 4}}},
		"rank 2 is missing ":                {names: "a,b", ranks: map[string][]uint32{"a": {1, 3}, "b": {0, 5}}},
		"more than 4 processes":             {names: "a,b", ranks: map[string][]uint32{"a": {1, 3, 2}, "b": {0, 2}}},
		"has ranks [0 1] on this node, and": {names: "a,b", ranks: map[string][]uint32{"a": {0, 1}, "b": {2, 3}}},
	} {
		if m, err := resolveBy(t.Context(), c, member); !errors.Is(err, errNoMap) || !strings.Contains(err.Error()+" ", want) || len(m) > 0 {
			t.Errorf("%+v: got %v, %v, want %q", c, m, err, want)
		}
	}
	silent := errors.New("no answer")
	if _, err := resolveBy(t.Context(), cluster{err: silent}, member); !errors.Is(err, silent) || errors.Is(err, errNoMap) {
		t.Errorf("a server that does not answer: %v", err)
	}
}

// FuzzResolve reads the nodes of a server as a list of names and one of ranks for each.
func FuzzResolve(f *testing.F) {
	f.Add("a,b", []byte{0, 2, 255, 1, 3})
	f.Add("a", []byte{0, 1, 2, 3})
	f.Add(",", []byte{})
	f.Fuzz(func(t *testing.T, names string, ranks []byte) {
		c := cluster{names: names, ranks: map[string][]uint32{}}
		list := strings.Split(names, ",")
		for i := 0; len(ranks) > 0 && i < len(list); {
			r := ranks[0]
			if ranks = ranks[1:]; r == 255 {
				i++
				continue
			}
			wide := uint32(r)
			if r > 250 && len(ranks) >= 4 {
				wide, ranks = binary.LittleEndian.Uint32(ranks), ranks[4:]
			}
			c.ranks[list[i]] = append(c.ranks[list[i]], wide)
		}
		m, err := resolveBy(t.Context(), c, member)
		if err != nil {
			return
		}
		if again, err := bootstrap.MakeNodeMap(0, 4, m); err != nil || !slices.Equal(again, m) || !slices.Equal(m.Ranks(m[1].Node), member.LocalRanks) {
			t.Errorf("%+v is %v, %v", c, m, err)
		}
	})
}

// mapped reads the map of the nodes in all ranks, twice.
func mapped(ctx context.Context) error {
	l, err := openLauncher(ctx, defaults)
	if err != nil {
		return err
	}
	for range 2 {
		m, err := l.NodeMap(ctx)
		fmt.Printf("rank %d: map %v %v\n", l.id.Proc.Rank, m, err)
	}
	return errors.Join(pmixtest.SetFlag(fmt.Sprint("done", l.id.Proc.Rank), ""), pmixtest.AwaitFlags(ctx, "done0", "done1", "done2", "done3"), l.Close())
}

// mappedLater finalizes all ranks before they read the map of the nodes.
func mappedLater(ctx context.Context) error {
	l, err := openLauncher(ctx, defaults)
	if err == nil {
		err = l.Close()
	}
	if err != nil {
		return err
	}
	if l, err = openLauncher(ctx, defaults); err != nil {
		return err
	}
	m, err := l.NodeMap(ctx)
	fmt.Printf("rank %d: map %v %v\n", l.id.Proc.Rank, m, err)
	return errors.Join(pmixtest.SetFlag(fmt.Sprint("done", l.id.Proc.Rank), ""), pmixtest.AwaitFlags(ctx, "done0", "done1", "done2", "done3"), l.Close())
}

// A process with the map and one without it would create different communicators.
func TestNodeMap_ProcessHasFinalized_HasIt(t *testing.T) {
	installed(t)
	for want, launcher := range map[string][]string{"map [{0 2 0} {2 2 1}] <nil>": pmixtest.Server(t, "-n", "4", "-nodes", "2"), "map [{0 4 0}] <nil>": pmixtest.Mpirun(t, 4)} {
		if out := pmixtest.Run(t, launcher, "mappedLater"); strings.Count(out, want) != 4 {
			t.Errorf("want %q of each rank in\n%s", want, out)
		}
	}
}

func TestNodeMap_ServerOfTwoNodes_ListsBoth(t *testing.T) {
	installed(t)
	for args, want := range map[string]string{"-nodes 2": "map [{0 2 0} {2 2 1}] <nil>", "-nodes 1": "map [{0 4 0}] <nil>", "-nodes 2 -no-peers": "map [{0 2 0} {2 2 1}] <nil>"} {
		out := pmixtest.Run(t, pmixtest.Server(t, append([]string{"-n", "4"}, strings.Fields(args)...)...), "mapped")
		if strings.Count(out, want) != 8 {
			t.Errorf("%s: want %q of each rank in\n%s", args, want, out)
		}
	}
}

func TestNodeMap_MappingOfAnotherLauncher_IsIgnored(t *testing.T) {
	installed(t)
	out := pmixtest.Run(t, pmixtest.Server(t, "-n", "4", "-nodes", "2"), "mapped", slurmMapping+"=(vector,(0,4,1))")
	if strings.Count(out, "map [{0 2 0} {2 2 1}] <nil>") != 8 {
		t.Errorf("%s", out)
	}
}

func TestNodeMap_OfSlurm_AgreesWithTheServer(t *testing.T) {
	for text, want := range map[string]string{
		"(vector,(0,2,1))": "[{0 1 0} {1 1 1} {2 1 0} {3 1 1}]",
		"(vector,(0,2,2))": "no map of the nodes: it has ranks [0 1] on this node, and the server names [1 3]",
		"(vector,(0,2,2)":  "no map of the nodes: SLURM_PMIX_MAPPING_SERV: process mapping",
		"":                 "no map of the nodes: SLURM_PMIX_MAPPING_SERV: process mapping",
	} {
		t.Setenv(slurmMapping, text)
		t.Setenv("PMIX_NAMESPACE", "slurm.pmix.1.0")
		m, err := (&launcher{process: &process{id: member}}).resolveNodeMap(t.Context())
		if got := fmt.Sprint(m, " ", err); !strings.Contains(got, want) {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}

// A call for the map may wait for a server that does not answer.
func TestPreloadNodeMap_CallInProgress_EndsWithTheContext(t *testing.T) {
	p := &process{nodes: newNodeMap()}
	<-p.nodes.lock
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p.preloadNodeMap(ctx)
	if p.nodes.isKnown || len(p.nodes.lock) > 0 {
		t.Errorf("known %t, %d tokens", p.nodes.isKnown, len(p.nodes.lock))
	}
}
