//go:build cgo

package pmixc

/*
#cgo LDFLAGS: -ldl -lpthread
#cgo noescape fpmix_next
#cgo nocallback fpmix_next
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/ferrympi/ferry/internal/elfcheck"
)

// The statuses of pmixc.go are those of abi.h: an index other than 0 does not compile.
var _ = [...]struct{}{
	[1]struct{}{}[ProcAborted-C.FPMIX_ERR_PROC_ABORTED],
	[1]struct{}{}[Timeout-C.FPMIX_ERR_TIMEOUT],
	[1]struct{}{}[Unreachable-C.FPMIX_ERR_UNREACH],
	[1]struct{}{}[NotFound-C.FPMIX_ERR_NOT_FOUND],
	[1]struct{}{}[NotSupported-C.FPMIX_ERR_NOT_SUPPORTED],
	[1]struct{}{}[PartialSuccess-C.FPMIX_ERR_PARTIAL_SUCCESS],
	[1]struct{}{}[LostConnection-C.FPMIX_ERR_LOST_CONNECTION],
	[1]struct{}{}[ProcUnsynced-C.FPMIX_ERR_PROC_TERM_WO_SYNC],
	[1]struct{}{}[ProcKilled-C.FPMIX_ERR_PROC_ABORTED_BY_SIG],
	[1]struct{}{}[ProcExitNonzero-C.FPMIX_ERR_EXIT_NONZERO_TERM],
	[1]struct{}{}[KindNumber-C.FPMIX_NUMBER], [1]struct{}{}[KindText-C.FPMIX_TEXT],
	[1]struct{}{}[MaxNamespace+1-C.FPMIX_NSPACE_ROOM], [1]struct{}{}[MaxKey+1-C.FPMIX_KEY_ROOM],
	[1]struct{}{}[Wildcard-C.FPMIX_RANK_WILDCARD],
}

// Library is libpmix, loaded.
type Library struct {
	c     *C.fpmix_lib
	calls callSlots
}

var libraries = struct {
	sync.Mutex
	libs map[string]*Library
}{libs: map[string]*Library{}}

// Built returns nil if this program can load libpmix, or why not.
func Built() error { return nil }

func loadedFrom(path string) *Library {
	libraries.Lock()
	defer libraries.Unlock()
	return libraries.libs[path]
}

// Load loads the library: path is a file, or a name that the dynamic linker looks
// for. It stays loaded, and a second Load of the same path returns it again. Load blocks as long as a file system
// does, and then other threads continue (elfcheck).
func Load(path string) (*Library, error) {
	if l := loadedFrom(path); l != nil {
		return l, nil
	}
	if err := elfcheck.Check(path, "pmix/*.so"); err != nil {
		return nil, err
	}
	libraries.Lock()
	defer libraries.Unlock()
	if l := libraries.libs[path]; l != nil {
		return l, nil
	}
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var why [512]C.char
	var c *C.fpmix_lib
	if C.fpmix_load(name, &c, &why[0], C.size_t(len(why))) != 0 {
		return nil, loadError(path, C.GoString(&why[0]))
	}
	libraries.libs[path] = &Library{c: c, calls: make(callSlots, MaxCalls)}
	return libraries.libs[path], nil
}

// About is what the library says of itself.
func (l *Library) VersionText() string { return C.GoString(C.fpmix_version(l.c)) }

// Version is the library's; ok is false if it says something that is none.
func (l *Library) Version() (v Version, ok bool) { return parseVersion(l.VersionText()) }

// Text is the library's text for a status.
func (l *Library) StatusText(s Status) string {
	return cmp.Or(C.GoString(C.fpmix_text(l.c, C.int(s))), "no text")
}

func (l *Library) check(call string, r C.int) error {
	if r == 0 {
		return nil
	}
	return &Error{call, Status(r), l.StatusText(Status(r))}
}

// do is within for a call that has no result.
func (l *Library) doCall(ctx context.Context, call string, f func() C.int) error {
	_, err := runCall(ctx, l.calls, call, func() (struct{}, error) { return struct{}{}, l.check(call, f()) })
	return err
}

// Init connects to the server that the environment names (PMIX_NAMESPACE, PMIX_RANK,
// PMIX_SERVER_URI and others), and says who this process is. Each needs a Finalize, and
// a pair of them leaks some 0.15 MiB in 4.2.2. One that succeeds when its caller has gone
// finalizes by itself.
func (l *Library) Init(ctx context.Context) (Proc, error) {
	const call = "PMIx_Init"
	var p C.fpmix_proc
	var settled atomic.Bool // by whoever comes first: the call that succeeds, or the caller that leaves
	me, err := runCall(ctx, l.calls, call, func() (Proc, error) {
		if err := l.check(call, C.fpmix_init(l.c, &p)); err != nil {
			return Proc{}, err
		}
		if !settled.CompareAndSwap(false, true) {
			C.fpmix_finalize(l.c)
		}
		return goProc(&p), nil
	})
	if err != nil && !settled.CompareAndSwap(false, true) {
		return goProc(&p), nil // it has succeeded while the caller turned to go
	}
	return me, err
}

// Initialized reports whether the process, not necessarily this package, has
// initialised the library.
func (l *Library) Initialized() bool { return C.fpmix_initialized(l.c) != 0 }

// Finalize says that this process is done. It waits for calls in progress, because libpmix
// takes away what they stand on, and is called once at a time.
func (l *Library) Finalize(ctx context.Context) error {
	const call = "PMIx_Finalize"
	release, err := l.calls.acquireAll(ctx, call)
	if err != nil {
		return err
	}
	defer release()
	return l.doCall(ctx, call, func() C.int { return C.fpmix_finalize(l.c) })
}

// Abort ends the job.
func (l *Library) Abort(ctx context.Context, status int, message string) error {
	return l.doCall(ctx, "PMIx_Abort", func() C.int {
		s := C.CString(message)
		defer C.free(unsafe.Pointer(s))
		return C.fpmix_abort(l.c, C.int(status), s)
	})
}

// Put stores value under key for all processes. It is copied, and on its way after
// Commit.
func (l *Library) Put(ctx context.Context, key string, value []byte) error {
	const call = "PMIx_Put"
	if err := checkName(call, key, MaxKey); err != nil {
		return err
	}
	bytes := C.CBytes(value) // the caller may be gone before the call is
	return l.doCall(ctx, call, func() C.int {
		defer C.free(bytes)
		k := C.CString(key)
		defer C.free(unsafe.Pointer(k))
		return C.fpmix_put(l.c, k, bytes, C.size_t(len(value)))
	})
}

// Commit sends what was put to the server.
func (l *Library) Commit(ctx context.Context) error {
	return l.doCall(ctx, "PMIx_Commit", func() C.int { return C.fpmix_commit(l.c) })
}

// Get returns what p has put under key, or what the server knows of it. With limit 0 it
// asks the server of this node (PMIX_IMMEDIATE): that knows its own processes, and of
// others what somebody has fetched before. With a limit, in whole seconds and at least
// one, that server asks the one of p's node, and waits until p has put it (PMIX_TIMEOUT).
// What is not there is an Error: NotFound, or Timeout.
func (l *Library) Get(ctx context.Context, p Proc, key string, limit time.Duration) (Value, error) {
	const call = "PMIx_Get"
	if err := checkName(call, key, MaxKey); err != nil {
		return Value{}, err
	}
	if err := checkName(call, p.Namespace, MaxNamespace); err != nil {
		return Value{}, err
	}
	return runCall(ctx, l.calls, call, func() (Value, error) {
		ns, k := C.CString(p.Namespace), C.CString(key)
		defer C.free(unsafe.Pointer(ns))
		defer C.free(unsafe.Pointer(k))
		var got C.fpmix_got
		if err := l.check(call, C.fpmix_get(l.c, ns, C.uint32_t(p.Rank), k, toSeconds(limit), &got)); err != nil {
			return Value{}, err
		}
		defer C.free(unsafe.Pointer(got.bytes))
		return goValue(&got)
	})
}

func goValue(got *C.fpmix_got) (Value, error) {
	if got.n > math.MaxInt32 {
		return Value{}, fmt.Errorf("a value of %d bytes", uint64(got.n))
	}
	return Value{
		Kind: Kind(got.kind), Type: int(got._type), Number: int64(got.number),
		Bytes: C.GoBytes(unsafe.Pointer(got.bytes), C.int(got.n)),
	}, nil
}

// seconds rounds up: 0 would mean for ever.
func toSeconds(d time.Duration) C.int {
	return C.int(min(int64((d+time.Second-1)/time.Second), math.MaxInt32))
}

// Fence returns when all of these ranks of a namespace, the caller among them, have
// called it with the same list. The list goes as it is: all callers need the same order,
// and a wildcard that some use in place of the ranks hangs. A member that never comes ends
// it after limit, with Timeout in all (4.2.2) or in one, and success in the others (5.0.7);
// one that has died may count as one that came.
func (l *Library) Fence(ctx context.Context, namespace string, ranks []uint32, limit time.Duration) error {
	const call = "PMIx_Fence"
	if err := checkGroup(call, namespace, ranks, limit); err != nil {
		return err
	}
	members := append([]uint32(nil), ranks...)
	return l.doCall(ctx, call, func() C.int {
		ns := C.CString(namespace)
		defer C.free(unsafe.Pointer(ns))
		return C.fpmix_fence(l.c, ns, (*C.uint32_t)(&members[0]), C.size_t(len(members)), toSeconds(limit))
	})
}

// Construct is a Fence that makes a group, and draws a context id for it. The server of 4.2.2
// crashes (SIGSEGV) when the limit passes, and with it the job may end.
func (l *Library) Construct(ctx context.Context, name, namespace string, ranks []uint32, limit time.Duration) (id uint64, err error) {
	const call = "PMIx_Group_construct"
	if err := checkGroup(call, namespace, ranks, limit); err != nil {
		return 0, err
	}
	if err := checkName(call, name, MaxKey); err != nil {
		return 0, err
	}
	members := append([]uint32(nil), ranks...)
	return runCall(ctx, l.calls, call, func() (uint64, error) {
		ns, group := C.CString(namespace), C.CString(name)
		defer C.free(unsafe.Pointer(ns))
		defer C.free(unsafe.Pointer(group))
		var id C.uint64_t
		r := C.fpmix_group(l.c, group, ns, (*C.uint32_t)(&members[0]), C.size_t(len(members)), toSeconds(limit), &id)
		if err := l.check(call, r); err != nil {
			return 0, err
		}
		return uint64(id), nil
	})
}

// Psets returns the names of the process sets, with commas.
func (l *Library) Psets(ctx context.Context) (string, error) {
	const call = "PMIx_Query_info"
	v, err := runCall(ctx, l.calls, call, func() (Value, error) {
		var got C.fpmix_got
		if err := l.check(call, C.fpmix_pset_names(l.c, &got)); err != nil {
			return Value{}, err
		}
		defer C.free(unsafe.Pointer(got.bytes))
		return goValue(&got)
	})
	return string(v.Bytes), err
}

// Pset returns the members of a process set.
func (l *Library) Pset(ctx context.Context, name string) ([]Proc, error) {
	const call = "PMIx_Query_info"
	return runCall(ctx, l.calls, call, func() ([]Proc, error) {
		s := C.CString(name)
		defer C.free(unsafe.Pointer(s))
		var list *C.fpmix_proc
		var n C.size_t
		if err := l.check(call, C.fpmix_pset_members(l.c, s, &list, &n)); err != nil {
			return nil, err
		}
		defer C.free(unsafe.Pointer(list))
		return goProcs(list, n), nil
	})
}

// Nodes returns the names of the nodes of a namespace, with commas. It asks the server of this node.
func (l *Library) Nodes(ctx context.Context, namespace string) (string, error) {
	const call = "PMIx_Resolve_nodes"
	if err := checkName(call, namespace, MaxNamespace); err != nil {
		return "", err
	}
	return runCall(ctx, l.calls, call, func() (string, error) {
		ns := C.CString(namespace)
		defer C.free(unsafe.Pointer(ns))
		var nodes *C.char
		err := l.check(call, C.fpmix_nodes(l.c, ns, &nodes))
		defer C.free(unsafe.Pointer(nodes))
		if err != nil {
			return "", err
		}
		return C.GoString(nodes), nil
	})
}

// Peers returns the processes of a namespace on a node. It asks the server of this node.
func (l *Library) Peers(ctx context.Context, node, namespace string) ([]Proc, error) {
	const call = "PMIx_Resolve_peers"
	if err := cmp.Or(checkName(call, namespace, MaxNamespace), checkName(call, node, MaxKey)); err != nil {
		return nil, err
	}
	return runCall(ctx, l.calls, call, func() ([]Proc, error) {
		ns, name := C.CString(namespace), C.CString(node)
		defer C.free(unsafe.Pointer(ns))
		defer C.free(unsafe.Pointer(name))
		var list *C.fpmix_proc
		var n C.size_t
		err := l.check(call, C.fpmix_peers(l.c, name, ns, &list, &n))
		defer C.free(unsafe.Pointer(list))
		if err != nil {
			return nil, err
		}
		return goProcs(list, n), nil
	})
}

// procs copies a list.
func goProcs(list *C.fpmix_proc, n C.size_t) []Proc {
	var all []Proc
	for i := range unsafe.Slice(list, n) {
		all = append(all, goProc(&unsafe.Slice(list, n)[i]))
	}
	return all
}

// Watch has events with that code come to Next. A process watches a code once: a
// second time it would come twice.
func (l *Library) Watch(ctx context.Context, code Status) error {
	return l.doCall(ctx, "PMIx_Register_event_handler", func() C.int { return C.fpmix_watch(l.c, C.int(code)) })
}

// Next takes the oldest event; ok is false if there is none. It does not wait. Events
// belong to the process: each comes once, whoever asks.
func (*Library) NextEvent() (e Event, ok bool) {
	var n C.fpmix_news
	if C.fpmix_next(&n) == 0 {
		return Event{}, false
	}
	return Event{Code: Status(n.code), Proc: goProc(&n.proc)}, true
}

// Dropped is the number of events for which there was no room.
func (*Library) DroppedEvents() uint64 { return uint64(C.fpmix_dropped()) }

// Bell returns a file from which eight bytes, which mean nothing, can be read when events
// may have come. Who reads them takes them from all others who have the file. The caller
// closes it.
func (*Library) EventFile() (*os.File, error) {
	fd := C.fpmix_bell()
	if fd < 0 {
		return nil, os.NewSyscallError("eventfd", syscall.Errno(-fd))
	}
	return os.NewFile(uintptr(fd), "events of libpmix"), nil
}

func goProc(p *C.fpmix_proc) Proc {
	return Proc{Namespace: C.GoString(&p.nspace[0]), Rank: uint32(p.rank)}
}
