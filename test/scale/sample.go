package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/ferrympi/ferry/assembly"
	"github.com/ferrympi/ferry/assembly/wireup"
	"github.com/ferrympi/ferry/assembly/wireup/wireuptest"
	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/local"
	"github.com/ferrympi/ferry/btl/self"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/ob1"
)

// One process in sampleInterval is a sample, and at least leastSamples of a group.
const (
	sampleInterval = 256
	leastSamples   = 4
)

// sample is a modeled process with a real assembly and a real ob1.
type sample struct {
	*assembly.Assembly
	// Rank in the group.
	groupRank int
	comm      pml.Comm
	// Number of processes with which it exchanges messages in the creation.
	peerCount int
}

// samples are those of a creation.
type samples struct {
	// Parent of the directories of sampled nodes, which determine the node ids.
	parentDir  string
	client     bootstrap.Client
	group      []framework.Proc
	sampleList []*sample
}

// openSamples opens samples of a group, and puts it into the payloads of m. The caller closes the samples.
func openSamples(o options, m *members, group framework.Procs) (s *samples, err error) {
	s = &samples{group: group.List()}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.parentDir, err = os.MkdirTemp("", "ferry-scale-"); err != nil {
		return s, err
	}
	if s.client, err = local.Component().Open(context.Background(), bootstrap.Env{Params: local.Component().Params()}); err != nil {
		return s, err
	}
	nodes := nodeMap(o.nodeCount, o.procsPerNode)
	interval := min(max(len(s.group)/leastSamples, 1), sampleInterval)
	for member := 0; member < len(s.group); member += interval {
		if err := s.open(o, nodes, member); err != nil {
			return s, err
		}
		a := s.sampleList[len(s.sampleList)-1]
		rank := int(s.group[member].Rank)
		m.noncesByRank[rank], m.nodeIDs[rank/o.procsPerNode] = a.Nonce(), a.Card().Node()
	}
	return s, nil
}

func (s *samples) open(o options, nodes bootstrap.NodeMap, member int) error {
	proc := s.group[member]
	rank := int(proc.Rank)
	node := rank / o.procsPerNode
	dir := filepath.Join(s.parentDir, fmt.Sprint(node))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	locals := make([]uint32, o.procsPerNode)
	for i := range locals {
		locals[i] = uint32(node*o.procsPerNode + i)
	}
	reg := framework.NewRegistry()
	reg.Register(ob1.Component())
	reg.Register(self.Component())
	reg.Register(newSink("shm"))
	reg.Register(newSink("tcp"))
	a, err := assembly.Open(context.Background(), assembly.Options{
		Registry: reg, Settings: []framework.Setting{{Name: "btl.shm.dir", Value: dir}},
		Client: modeledClient{s.client, bootstrap.Identity{
			Proc: proc, Size: o.nodeCount * o.procsPerNode, MaxSize: o.nodeCount * o.procsPerNode, LocalRank: rank % o.procsPerNode, LocalSize: o.procsPerNode, LocalRanks: locals, Nodes: nodes,
		}},
	})
	if err != nil {
		return err
	}
	s.sampleList = append(s.sampleList, &sample{Assembly: a, groupRank: member})
	return nil
}

// modeledClient is the client of a modeled process.
type modeledClient struct {
	bootstrap.Client
	identity bootstrap.Identity
}

func (c modeledClient) Identity() bootstrap.Identity { return c.identity }

// accept creates the communicator in some samples.
func (s *samples) accept(r wireuptest.Result, some []*sample) error {
	work := make(chan *sample)
	failed := make([]error, runtime.GOMAXPROCS(0))
	var workers sync.WaitGroup
	for i := range failed {
		workers.Go(func() {
			for x := range work {
				if err := x.accept(s.group, r.Outcomes[x.groupRank].Table); err != nil {
					failed[i] = fmt.Errorf("member %d: %w", x.groupRank, err)
				}
			}
		})
	}
	for _, x := range some {
		work <- x
	}
	close(work)
	workers.Wait()
	return errors.Join(failed...)
}

// accept accepts the table of the node, and sends a message to as many processes as in the creation.
func (x *sample) accept(group []framework.Proc, shared *wireup.Table) error {
	t, err := wireup.OpenTable(shared.Bytes(), len(group))
	if err != nil {
		return err
	}
	m, spec, err := x.AcceptTable(t, group, x.groupRank)
	if err != nil {
		return err
	}
	if x.comm, err = m.AddComm(spec); err != nil {
		return err
	}
	return x.meet(m, spec.Members)
}

// meet sends a message to the peers on a communicator of a level, and closes it.
func (x *sample) meet(m assembly.PML, all pml.Members) error {
	list := []pml.Member{all.Member(x.groupRank)}
	for i := 1; i <= x.peerCount; i++ { // The next members are mostly those of the node.
		list = append(list, all.Member((x.groupRank+i)%all.Len()))
	}
	const levelID = 1 << 62
	ids := m.CIDs()
	offer := ids.WithholdCandidates(cid.PolicyAgree, len(list), 1<<10)
	defer ids.Release(offer)
	d, err := cid.Decide([][]byte{offer.Bytes()})
	if err == nil {
		err = ids.Accept(offer, d.Local(0))
	}
	if err != nil {
		return err
	}
	comm, err := m.AddComm(pml.CommSpec{ID: cid.Extended{Base: levelID}, Local: d.Local(0), Agreed: true, Members: pml.NewMembersFrom(all, list)})
	if err != nil {
		return err
	}
	defer comm.Close()
	for to := 1; to < len(list); to++ {
		r, err := comm.Isend(pml.Buffer{Bytes: make([]byte, 8)}, to, 1, pml.Control, pml.Standard)
		if err == nil {
			err = r.Free(r.Generation())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *samples) close() (err error) {
	for _, x := range s.sampleList {
		if x.comm != nil {
			x.comm.Close()
		}
		err = errors.Join(err, x.Close())
	}
	if s.client != nil {
		err = errors.Join(err, s.client.Close())
	}
	return errors.Join(err, os.RemoveAll(s.parentDir))
}
