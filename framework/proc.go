package framework

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"sync"
)

// Proc is the global name of a process, with the namespace of its job from the launcher and its rank in the job.
type Proc struct {
	Namespace string
	Rank      uint32
}

// String returns the name for messages, for example "rank 1". It omits the job, because most messages concern one job.
func (p Proc) String() string {
	if process, stream := p.Process(); stream > 0 {
		return fmt.Sprintf("rank %d (stream %d)", process.Rank, stream)
	}
	return fmt.Sprintf("rank %d", p.Rank)
}

// streamMark separates the namespace of a process from the number of a stream. Launchers do not use it in names.
const streamMark = "\x00stream "

// Stream returns the name of a stream of a process. The stacks of other processes address the stream by it, as a process of
// another job. 0 is the process itself.
func (p Proc) Stream(number int) Proc {
	if number > 0 {
		p.Namespace += streamMark + strconv.Itoa(number)
	}
	return p
}

// Process returns the process of a name, and the number of its stream. 0 is the process itself.
func (p Proc) Process() (process Proc, stream int) {
	namespace, number, ok := strings.Cut(p.Namespace, streamMark)
	if !ok {
		return p, 0
	}
	stream, _ = strconv.Atoi(number) // Written by Stream.
	return Proc{Namespace: namespace, Rank: p.Rank}, stream
}

// ProcID is the local name of a process, with the index of its world in the upper 32 bits and its rank in the lower. The index is local to this
// process (paper 000, section 3.2), so a ProcID is never sent. A Proc may be.
type ProcID uint64

// MakeProcID joins a world index and a rank in that world.
func MakeProcID(world, rank uint32) ProcID { return ProcID(world)<<32 | ProcID(rank) }

// World returns the index of the process's namespace in this process's Worlds.
func (id ProcID) World() uint32 { return uint32(id >> 32) }

// Rank returns the rank of the process in its namespace.
func (id ProcID) Rank() uint32 { return uint32(id) }

// Worlds numbers the namespaces known to this process, which has index 0 itself. It is safe for concurrent use, and only grows.
type Worlds struct {
	mu          sync.RWMutex
	namespaces  []string
	indexByName map[string]uint32
	indexByHash map[uint64]uint32
}

// NewWorlds returns a table with own at index 0.
func NewWorlds(own string) *Worlds {
	w := &Worlds{indexByName: map[string]uint32{}, indexByHash: map[uint64]uint32{}}
	w.Index(own)
	return w
}

// Index returns the number of namespace, and assigns one if it is new.
func (w *Worlds) Index(namespace string) uint32 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i, ok := w.indexByName[namespace]; ok {
		return i
	}
	i := uint32(len(w.namespaces))
	w.namespaces = append(w.namespaces, namespace)
	w.indexByName[namespace] = i
	w.indexByHash[NamespaceHash(namespace)] = i
	return i
}

// ID returns the local name of p, and assigns a number to a new namespace.
func (w *Worlds) ID(p Proc) ProcID { return MakeProcID(w.Index(p.Namespace), p.Rank) }

// Proc returns the global name of id. It panics for a world that has no number here, because ids of other processes must not be used.
func (w *Worlds) Proc(id ProcID) Proc {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return Proc{w.namespaces[id.World()], id.Rank()}
}

// ByHash returns the namespace with a hash from a connection request in shared memory. ok is false before a group has brought the namespace here.
func (w *Worlds) ByHash(h uint64) (world uint32, ok bool) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	world, ok = w.indexByHash[h]
	return world, ok
}

// NamespaceHash returns the 64-bit FNV-1a hash of a namespace, which names it in wire structures of fixed size.
func NamespaceHash(namespace string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(namespace))
	return h.Sum64()
}
