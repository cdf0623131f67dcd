package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/ferrympi/ferry/assembly/wireup"
	"github.com/ferrympi/ferry/assembly/wireup/wireuptest"
	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/ob1"
)

// Limits that a world and a sparse world keep at all sizes.
const (
	mostRoundsRatio   = 2.0 // Of the rounds of fewNodes nodes.
	fewNodes          = 32
	mostLauncherBytes = 8 << 20 // Of a process.
	mostTableBytes    = 64 << 20
	mostMedianBytes   = 128 << 10
	mostRootBytes     = 1 << 20
	leastSparseRatio  = 20 // Tables of a world to those of a sparse world, from largeNodes nodes on.
	largeNodes        = 512
	timeout           = 60 * time.Second // Default of bootstrap.timeout.
)

// nodeMap returns the map of nodes with consecutive ranks.
func nodeMap(nodes, ppn int) bootstrap.NodeMap {
	m := make(bootstrap.NodeMap, nodes)
	for n := range m {
		m[n] = bootstrap.NodeRun{First: uint32(n * ppn), Count: uint32(ppn), Node: uint32(n)}
	}
	return m
}

// members are the payloads of a job with ob1 over self, shm and tcp. All processes are at their first creation.
type members struct {
	capabilities []byte
	// Encoded candidate ids of a communicator, and of that of a level.
	commCandidates, levelCandidates []byte
	procsPerNode                    int
	// Of samples.
	noncesByRank map[int]uint64
	// Of samples, by node.
	nodeIDs map[int]string
}

func newMembers(ppn int) (*members, error) {
	capabilities, err := wireup.EncodeCapabilities([]pml.Capabilities{{PML: "ob1", Version: ob1.WireVersion, Priority: 20}})
	table := cid.NewTable(cid.IndexBits)
	one := table.WithholdCandidates(cid.PolicyAgree, 2, 8)
	defer table.Release(one)
	return &members{capabilities: capabilities, levelCandidates: one.Bytes(), commCandidates: cid.NewTable(cid.IndexBits).WithholdCandidates(cid.PolicyAgree, 2, 1<<10).Bytes(), procsPerNode: ppn,
		noncesByRank: map[int]uint64{}, nodeIDs: map[int]string{}}, err
}

// payload returns the payload of a rank of the world. The entries of the card have the lengths of those of a host with two addresses.
func (m *members) payload(rank int) wireup.Payload {
	nonce, isSample := m.noncesByRank[rank]
	if !isSample {
		nonce = uint64(rank)<<32 | 1
	}
	node, isSampled := m.nodeIDs[rank/m.procsPerNode]
	if !isSampled {
		node = fmt.Sprintf("%064x", rank/m.procsPerNode)
	}
	card, err := wireup.EncodeCard(framework.Card{
		{Component: "node", Blob: []byte(node)},
		{Component: "pml.ob1", Blob: make([]byte, 8)},
		{Component: "btl.self"},
		{Component: "btl.shm", Blob: fmt.Appendf(nil, "ferry-0-%016x", rank)},
		{Component: "btl.tcp", Blob: fmt.Appendf(nil, "%064x", rank)},
	})
	if err != nil {
		panic(err) // The card is constant but for the rank.
	}
	return wireup.Payload{Nonce: nonce, Capabilities: m.capabilities, Card: card, IDs: m.levelCandidates, GroupIDs: m.commCandidates}
}

// job returns the creation of a communicator of a group.
func (o options) job(m *members, group framework.Procs) wireuptest.Job {
	return wireuptest.Job{
		Machine: o.machine, NodeMap: nodeMap(o.nodeCount, o.procsPerNode), Group: group, Timeout: timeout,
		Payload: func(member int) wireup.Payload { return m.payload(int(group.At(member).Rank)) },
	}
}

// world returns the group of all ranks, and roots that of the node roots.
func (o options) world() framework.Procs { return wireuptest.Ranks(0, 1, o.nodeCount*o.procsPerNode) }
func (o options) roots() framework.Procs { return wireuptest.Ranks(0, o.procsPerNode, o.nodeCount) }

// runSizes creates a world, a sparse world and a communicator of every second rank.
func runSizes(out io.Writer, o options) error {
	few := o
	few.nodeCount = min(fewNodes, o.nodeCount)
	reference, err := create(few, few.world())
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "world of %d nodes x %d, for reference: %d rounds, %v\n", few.nodeCount, o.procsPerNode, reference.LongestChain, round(reference.Elapsed))

	world, err := createMeasured(o, o.world())
	if err != nil {
		return err
	}
	report(out, fmt.Sprintf("world of %d nodes x %d", o.nodeCount, o.procsPerNode), world)
	if err := checkWorld(out, world, reference); err != nil {
		return err
	}
	if err := sparse(out, o, world); err != nil {
		return err
	}
	second, err := createMeasured(o, wireuptest.Ranks(0, 2, (o.nodeCount*o.procsPerNode+1)/2))
	if err != nil {
		return err
	}
	report(out, "every second rank", second)
	return nil
}

// create creates one communicator, and checks its outcomes.
func create(o options, group framework.Procs) (*creation, error) {
	m, err := newMembers(o.procsPerNode)
	if err != nil {
		return nil, err
	}
	return m.create(o, group, nil)
}

// createMeasured is create with samples.
func createMeasured(o options, group framework.Procs) (c *creation, err error) {
	m, err := newMembers(o.procsPerNode)
	if err != nil {
		return nil, err
	}
	s, err := openSamples(o, m, group)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	return m.create(o, group, s)
}

func (m *members) create(o options, group framework.Procs, s *samples) (*creation, error) {
	j := o.job(m, group)
	r := j.Run()
	for i, outcome := range r.Outcomes {
		if outcome.Err != nil {
			return nil, fmt.Errorf("member %d: %w", i, outcome.Err)
		}
	}
	if err := j.Check(r); err != nil {
		return nil, err
	}
	return newCreation(r, s)
}

// sparse creates SHARED on one node, which stands for all, and ROOTS.
func sparse(out io.Writer, o options, world *creation) error {
	roots, err := createMeasured(o, o.roots())
	if err != nil {
		return err
	}
	m, err := newMembers(o.procsPerNode)
	if err != nil {
		return err
	}
	one := o
	one.nodeCount = 1
	j := one.job(m, one.world())
	j.IsSingle = true
	node := j.Run()
	for i, outcome := range node.Outcomes {
		if outcome.Err != nil {
			return fmt.Errorf("member %d of SHARED: %w", i, outcome.Err)
		}
	}
	report(out, "sparse world: ROOTS", roots)
	fmt.Fprintf(out, "sparse world: SHARED of each node\n  rounds %d, bootstrap %s, at most %s by a process, %v\n",
		node.LongestChain, size(node.TotalCounts.LauncherBytes), size(node.MostLauncherBytes), round(node.Elapsed))
	tables := roots.tableBytes + o.procsPerNode*roots.tableBytes/max(o.nodeCount, 1)
	ratio := float64(world.tableBytes) / float64(tables)
	fmt.Fprintf(out, "  tables of a node %s, 1/%.0f of those of the world\n", size(int64(tables)), ratio)
	if o.nodeCount >= largeNodes && ratio < leastSparseRatio {
		return fmt.Errorf("tables of the sparse world are 1/%.1f of those of the world, more than 1/%d", ratio, leastSparseRatio)
	}
	return nil
}

// runFaults creates worlds with a fault each.
func runFaults(out io.Writer, o options) error {
	m, err := newMembers(o.procsPerNode)
	if err != nil {
		return err
	}
	created, failed := 0, 0
	for i := range o.faultyCreations {
		random := rand.New(rand.NewPCG(o.seed, uint64(i)))
		j := o.job(m, o.world())
		j.Random = random
		j.Faults = []wireuptest.Fault{drawFault(random, o)}
		r := j.Run()
		f := j.Faults[0]
		if err := j.Check(r); err != nil {
			return fmt.Errorf("creation %d, member %d %v at step %d: %w", i, f.Member, f.Kind, f.AtStep, err)
		}
		text := "created"
		for member, outcome := range r.Outcomes {
			if member != f.Member && outcome.Err != nil {
				text = outcome.Err.Error()
			}
		}
		if text == "created" {
			created++
		} else {
			failed++
		}
		fmt.Fprintf(out, "%d: rank %d %v at step %d: %s\n", i, f.Member, f.Kind, f.AtStep, text)
	}
	fmt.Fprintf(out, "%d creations: %d created, %d failed alike in all members\n", o.faultyCreations, created, failed)
	return nil
}

// drawFault draws a fault of a root as often as one of another member.
func drawFault(random *rand.Rand, o options) wireuptest.Fault {
	member := random.IntN(o.nodeCount * o.procsPerNode)
	if random.IntN(2) == 0 {
		member -= member % o.procsPerNode
	}
	return wireuptest.Fault{Member: member, Kind: wireuptest.FaultKind(random.IntN(5)), AtStep: random.IntN(8 + 2*o.procsPerNode), IsDuringWait: random.IntN(2) == 0}
}
