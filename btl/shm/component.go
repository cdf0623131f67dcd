// Package shm is the BTL between processes of one node. Each process owns one
// inbox segment; a sender maps it and asks for a ring of cells there, which
// carries frames from that sender to the owner (docs/wire.md). Nothing is made
// for pairs that don't talk.
//
// It stands on internal/shmlayout for the layout, internal/ring for the ring and
// btl/segment for the files, and holds no unsafe code itself.
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
	"github.com/ferrympi/ferry/internal/ring"
	"github.com/ferrympi/ferry/internal/shmlayout"
)

// Component returns the component for the registry.
func Component() btl.Component { return component{segment.Files{}, cma.Read, cma.Write} }

// OnHeap returns a component whose segments lie in Go memory: several modules
// in one process, which the race detector can watch. For tests.
func OnHeap() btl.Component { return component{new(segment.Heap), cma.Read, cma.Write} }

// WithCopies returns a component whose modules copy from and to the memory of another process
// by these instead of cma.Read and cma.Write. For tests.
func WithCopies(read, write func(pid int, b []byte, at uint64) (int, error)) btl.Component {
	return component{segment.Files{}, read, write}
}

type component struct {
	space   segment.Space
	readVM  readVM
	writeVM writeVM
}

// params are the component's parameters; each is btl.shm.NAME.
type params struct {
	Dir        string         `param:"dir" default:"/dev/shm" level:"user" scope:"process" doc:"Directory for the segments: a file system in memory."`
	Fallback   string         `param:"fallback_dir" default:"/tmp" level:"user" scope:"process" doc:"Directory for the segments when dir has no room for them; slower. Empty: none."`
	RingSize   framework.Size `param:"ring_size" default:"0" min:"0" max:"64MiB" unit:"bytes" level:"tuner" scope:"process" doc:"Memory of the ring from one process to another, made when the first message goes that way; rounded up to a power of two. 0: twice the cache of a core, from 1 to 4 MiB; while more than two ranks share the node a share of twice that, or of 4 MiB if that is more, but at least 64 KiB; and less where dir is too small for all of them."`
	EagerLimit framework.Size `param:"eager_limit" default:"32KiB" min:"64" max:"16MiB" unit:"bytes" level:"tuner" scope:"process" doc:"A message up to this size travels at once and is buffered if nobody waits for it; at most a quarter of the ring. Messages of 32 KiB or more in AllocMem buffers are read in place instead, if that is allowed (single_copy, memory_min)."`
	MaxPeers   int            `param:"max_peers" default:"0" min:"0" max:"65536" level:"developer" scope:"process" doc:"Number of processes that may connect to this one; 0: twice the number of processes that the job may have on the node, and at least 64."`
	// docs/decisions/one-copy.md has the measurements behind these.
	SingleCopy string         `param:"single_copy" default:"auto" choices:"auto,off,cma,memory" level:"tuner" scope:"process" doc:"How a large message may be copied once, between the memory of both processes: memory (read out of what the sender has from AllocMem), cma (process_vm_readv and process_vm_writev, by either side or both), off, or auto: whichever has proved fastest for such messages. cma and memory force it: where it is impossible when such a message begins, and the receive buffer is contiguous, the message is an error."`
	MemoryMin  framework.Size `param:"memory_min" default:"8KiB" min:"0" unit:"bytes" level:"tuner" scope:"process" doc:"Messages from this size on that do not go at once (eager_limit) may be read out of memory that the sender has from AllocMem."`
	CMAMin     framework.Size `param:"cma_min" default:"32KiB" min:"0" unit:"bytes" level:"tuner" scope:"process" doc:"Messages from this size on that do not go at once (eager_limit) may be copied by process_vm_readv, where that is used."`
	CopyStep   framework.Size `param:"copy_step" default:"1MiB" min:"4KiB" max:"1GiB" unit:"bytes" level:"developer" scope:"process" doc:"Bytes that are read out of a peer's memory at a time; other messages wait meanwhile."`
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

// Suggest implements framework.Suggester. The other words are names of such transports in other libraries.
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
	if env.Identity.Leads() {
		// One process per job and node looks for what killed jobs have left.
		// What can't be removed harms nobody here.
		if removed, err := removeStale(c.space, p.Dir, p.Fallback, prefix()); err == nil && len(removed) > 0 {
			env.Logger.Info("btl shm: removed segments of dead processes", "count", len(removed))
		}
	}
	m := &module{
		env:      env,
		space:    c.space,
		dir:      p.Dir,
		fallback: p.Fallback,
		out:      map[framework.Life]*endpoint{},
		in:       map[framework.Life]*inbound{},
		broken:   map[int]ringMemory{},

		readVM:  c.readVM,
		writeVM: c.writeVM,
		copy:    newCopyPolicy(p),
		sources: map[framework.Life]*source{},
		mapped:  map[mappedKey]*mapped{},
		bells:   map[framework.Life]*farBell{},
	}
	m.ring, _ = m.ringBytes()
	m.frameLimit = ring.FrameLimit(m.ring / ring.CellSize)
	m.eagerLimit = min(int(p.EagerLimit)+btl.MinFrameLimit, m.frameLimit) // with a header
	slots := p.MaxPeers
	if slots == 0 {
		slots = max(64, 2*env.Identity.MostLocal())
	}
	size := pages(int64(shmlayout.Size(slots)))
	// The nonce makes the name unique: for a session that is opened again, for
	// containers that share the directory, for jobs with the same name.
	process, _ := env.Identity.Proc.Process() // The launcher removes segments by the namespace of the job.
	name := fmt.Sprintf("%s%d-%x", jobPrefix(process.Namespace), process.Rank, env.Self.Nonce)
	if mark := env.Identity.NodeMark(); mark != "" {
		name += "-" + mark
	}
	seg, err := c.space.Create(m.path(name), size)
	if short(err) && p.Fallback != "" {
		var second error
		if seg, second = c.space.Create(m.overflowPath(name), size); second == nil {
			m.scarce("btl shm: slower, because a file takes the place of shared memory", m.overflowPath(name), err)
			err = nil
		} else {
			err = fmt.Errorf("%w; btl.shm.fallback_dir has no room either: %w", err, second)
		}
	}
	if short(err) {
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
	m.near, m.mapping = newArea(seg, size), mapping
	m.table = newTable(slots, env.Self.Nonce)
	m.setMark()
	m.box = shmlayout.Init(mapping.Bytes, slots, env.Self.Nonce, ownPID())
	// Everybody who writes into the inbox can ring there.
	if m.releaseBell, err = env.Bell().Share(m.box.Bell()); err != nil {
		return nil, fmt.Errorf("btl shm: %w", errors.Join(err, mapping.Close(), seg.Close()))
	}
	return m, nil
}
