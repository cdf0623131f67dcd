// Package shm is the BTL between processes of one node. Each process owns an inbox segment. A
// sender maps the inbox of the receiver and requests a ring of cells there, which carries its
// frames to the owner (docs/wire.md). Only pairs of processes that communicate have a ring.
//
// Package internal/shmlayout defines the layout, internal/ring the rings and btl/segment the files.
// This package contains no unsafe code.
package shm

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/btl/segment"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/cma"
	"github.com/ferrympi/ferry/internal/cpu"
	"github.com/ferrympi/ferry/internal/ring"
	"github.com/ferrympi/ferry/internal/shmlayout"
)

// Component returns the component for the registry.
func Component() btl.Component { return component{segment.Files{}, cma.Read, cma.Write} }

// OnHeap returns a component whose segments are Go memory, for tests that run several modules in
// one process under the race detector.
func OnHeap() btl.Component { return component{new(segment.Heap), cma.Read, cma.Write} }

// WithCopyFuncs returns a component that copies from and to the memory of another process by read and
// write in place of cma.Read and cma.Write, for tests.
func WithCopyFuncs(read, write func(pid int, b []byte, at uint64) (int, error)) btl.Component {
	return component{segment.Files{}, read, write}
}

type component struct {
	space   segment.Space
	readVM  readFunc
	writeVM writeFunc
}

// params are the parameters of the component. Their names begin with btl.shm.
type params struct {
	Dir        string         `param:"dir" default:"/dev/shm" level:"user" scope:"process" doc:"Directory for the segments: a memory file system."`
	Fallback   string         `param:"fallback_dir" default:"/tmp" level:"user" scope:"process" doc:"Directory for segments that do not fit into dir; slower. Empty: none."`
	RingSize   framework.Size `param:"ring_size" default:"0" min:"0" max:"64MiB" unit:"bytes" level:"tuner" scope:"process" doc:"Size of the ring from one process to another, which is created for the first message; rounded up to a power of two. 0: twice the private cache of a core, limited to 1 to 4 MiB; with more than two ranks on the node, an equal share of twice that size or of 4 MiB, whichever is larger, but at least 64 KiB; smaller if dir has too little space for all rings."`
	EagerLimit framework.Size `param:"eager_limit" default:"32KiB" min:"64" max:"16MiB" unit:"bytes" level:"tuner" scope:"process" doc:"Messages up to this size are sent eagerly and buffered at the receiver if no receive is posted; at most a quarter of the ring. Messages of 32 KiB or more in AllocMem buffers are read in place instead, if single_copy and memory_min allow it."`
	MaxPeers   int            `param:"max_peers" default:"0" min:"0" max:"65536" level:"developer" scope:"process" doc:"Number of processes that may connect to this one; 0: twice the number of processes that the job may have on the node, at least 64."`
	// docs/decisions/one-copy.md has the measurements behind these defaults.
	SingleCopy string         `param:"single_copy" default:"auto" choices:"auto,off,cma,memory" level:"tuner" scope:"process" doc:"Methods that copy a large message once, directly between the memory of both processes: memory (the receiver reads the sender's AllocMem buffer), cma (process_vm_readv and process_vm_writev, by either side or both), off, or auto (the method that has been fastest for similar messages). cma and memory are mandatory: a large message into a contiguous buffer fails if the method is unavailable."`
	MemoryMin  framework.Size `param:"memory_min" default:"8KiB" min:"0" unit:"bytes" level:"tuner" scope:"process" doc:"Smallest message, above eager_limit, that may be read out of the sender's AllocMem buffer."`
	CMAMin     framework.Size `param:"cma_min" default:"32KiB" min:"0" unit:"bytes" level:"tuner" scope:"process" doc:"Smallest message, above eager_limit, that may be copied by process_vm_readv."`
	CopyStep   framework.Size `param:"copy_step" default:"1MiB" min:"4KiB" max:"1GiB" unit:"bytes" level:"developer" scope:"process" doc:"Bytes that one step reads out of a peer's memory. Other messages wait for the step."`
}

func (component) Info() framework.Info {
	return framework.Info{
		Kind:     framework.BTL,
		Name:     "shm",
		Version:  "1.0.0",
		Summary:  "processes of one node, through shared memory",
		Priority: 40,
	}
}

// Suggest implements framework.Suggester. It recognizes the names of such transports in other
// libraries.
func (component) Suggest(word string) string {
	switch word {
	case "shm", "vader", "sm", "sysv", "posix":
		return "btl=self,shm"
	}
	return ""
}

func (component) Params() any { return new(params) }

func (c component) Probe(_ context.Context, p any) framework.Verdict {
	if _, heap := c.space.(*segment.Heap); heap {
		return framework.Usable()
	}
	dir := p.(*params).Dir
	if dir == "" {
		return framework.Unavailable("btl.shm.dir is empty", "set it to a directory in memory")
	}
	if st, err := os.Stat(dir); err != nil || !st.IsDir() {
		return framework.Unavailable(fmt.Sprintf("%s is not a directory", dir), "set btl.shm.dir to a directory in memory")
	}
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return framework.Unavailable(fmt.Sprintf("%s: %v", dir, err), "set btl.shm.dir to a directory where you may write")
	}
	return framework.Usable()
}

func (c component) Open(_ context.Context, env btl.Env) (btl.Module, error) {
	p := env.Params.(*params)
	if env.Identity.IsJobReporter() {
		// One process per job and node removes the segments of killed jobs. Segments that it cannot
		// remove do not affect this process.
		if removed, err := removeStale(c.space, p.Dir, p.Fallback, prefix()); err == nil && len(removed) > 0 {
			env.Logger.Info("btl shm: removed segments of dead processes", "count", len(removed))
		}
	}
	m := &module{
		env:         env,
		space:       c.space,
		dir:         p.Dir,
		fallbackDir: p.Fallback,
		inboundPathSet: inboundPathSet{
			inboundPaths: map[framework.Incarnation]*inbound{},
			failedRings:  map[int]ringMemory{},
		},
		endpointSet: endpointSet{endpoints: map[framework.Incarnation]*endpoint{}},
		singleCopies: singleCopies{
			cacheDomain:   cpu.CacheDomain,
			readVM:        c.readVM,
			writeVM:       c.writeVM,
			policy:        newCopyPolicy(p),
			peerMemories:  map[framework.Incarnation]*peerMemory{},
			mappedRegions: map[regionKey]*mappedRegion{},
		},
		peerBells: map[framework.Incarnation]*sharedBell{},
	}
	m.initialRingBytes, _ = m.ringBytes()
	m.frameLimit = ring.FrameLimit(m.initialRingBytes / ring.CellSize)
	m.eagerLimit = min(int(p.EagerLimit)+btl.MinFrameLimit, m.frameLimit) // The limit applies to the payload.
	slots := p.MaxPeers
	if slots == 0 {
		slots = max(64, 2*env.Identity.MaxLocal())
	}
	size := roundToPages(int64(shmlayout.Size(slots)))
	// The nonce makes the name unique among successive sessions, containers that share the
	// directory, and jobs of the same name.
	process, _ := env.Identity.Proc.Process() // The launcher removes segments by the namespace of the job.
	name := fmt.Sprintf("%s%d-%x", jobPrefix(process.Namespace), process.Rank, env.Self.Nonce)
	if mark := env.Identity.NodeLabel(); mark != "" {
		name += "-" + mark
	}
	seg, err := c.space.Create(m.path(name), size)
	if isNoSpace(err) && p.Fallback != "" {
		var second error
		if seg, second = c.space.Create(m.overflowPath(name), size); second == nil {
			m.logShortage("btl shm: no space in shared memory: using a slower file", m.overflowPath(name), err)
			err = nil
		} else {
			err = fmt.Errorf("%w; btl.shm.fallback_dir has no space either: %w", err, second)
		}
	}
	if isNoSpace(err) {
		err = fmt.Errorf("%w or set btl.shm.dir to another directory", err)
	}
	if err != nil {
		return nil, fmt.Errorf("btl shm: %w", err)
	}
	mapping, err := seg.Map(0, int(size))
	if err != nil {
		seg.Close()
		return nil, fmt.Errorf("btl shm: %w", err)
	}
	m.inboxFile, m.mapping = newRingFile(seg, size), mapping
	m.shareTable = newTable(slots, env.Self.Nonce)
	m.setMark()
	m.inbox = shmlayout.Init(mapping.Bytes, slots, env.Self.Nonce, ownPID())
	// Every sender to this inbox rings the bell there.
	if m.releaseBell, err = env.Bell().Share(m.inbox.Bell()); err != nil {
		return nil, fmt.Errorf("btl shm: %w", errors.Join(err, mapping.Close(), seg.Close()))
	}
	return m, nil
}
