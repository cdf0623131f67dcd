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

// The statuses of pmixc.go equal those of abi.h. An index other than 0 does not compile.
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

// Library is the loaded libpmix.
type Library struct {
	c     *C.fpmix_lib
	calls callSlots
}

var libraries = struct {
	sync.Mutex
	libs map[string]*Library
}{libs: map[string]*Library{}}

// Built returns nil if this program can load libpmix, and the reason otherwise.
func Built() error { return nil }

func loadedFrom(path string) *Library {
	libraries.Lock()
	defer libraries.Unlock()
	return libraries.libs[path]
}

// Load loads the library. path is a file, or a name for the dynamic linker. It stays loaded, and a
// second Load of the same path returns it again. Load blocks as long as a file system does, and
// then other threads continue (elfcheck).
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

// VersionText returns the library's description of itself.
func (l *Library) VersionText() string { return C.GoString(C.fpmix_version(l.c)) }

// Version returns the library's version. ok is false if VersionText has none.
func (l *Library) Version() (v Version, ok bool) { return parseVersion(l.VersionText()) }

// StatusText returns the library's text for a status.
func (l *Library) StatusText(s Status) string {
	return cmp.Or(C.GoString(C.fpmix_text(l.c, C.int(s))), "no text")
}

func (l *Library) check(call string, r C.int) error {
	if r == 0 {
		return nil
	}
	return &Error{call, Status(r), l.StatusText(Status(r))}
}

// doCall is runCall for a call without a result.
func (l *Library) doCall(ctx context.Context, call string, f func() C.int) error {
	_, err := runCall(ctx, l.calls, call, func() (struct{}, error) { return struct{}{}, l.check(call, f()) })
	return err
}

// Init connects to the server that the environment names (PMIX_NAMESPACE, PMIX_RANK,
// PMIX_SERVER_URI and others), and returns the identity of this process. Each Init needs a
// Finalize, and a pair of them leaks about 0.15 MiB in 4.2.2. An Init that succeeds after its
// caller has left finalizes by itself.
func (l *Library) Init(ctx context.Context) (Proc, error) {
	const call = "PMIx_Init"
	var p C.fpmix_proc
	var settled atomic.Bool // Set by the call that succeeds or by the caller that leaves.
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
		return goProc(&p), nil // It has succeeded while the caller was leaving.
	}
	return me, err
}

// Initialized reports whether the process, not necessarily through this package, has initialized
// the library.
func (l *Library) Initialized() bool { return C.fpmix_initialized(l.c) != 0 }

// Finalize waits for calls in progress, because libpmix frees the memory that they use, and then
// finalizes. It must not be called concurrently.
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

// Put stores a copy of value under key for all processes. Commit sends it.
func (l *Library) Put(ctx context.Context, key string, value []byte) error {
	const call = "PMIx_Put"
	if err := checkName(call, key, MaxKey); err != nil {
		return err
	}
	bytes := C.CBytes(value) // The caller may leave before the call runs.
	return l.doCall(ctx, call, func() C.int {
		defer C.free(bytes)
		k := C.CString(key)
		defer C.free(unsafe.Pointer(k))
		return C.fpmix_put(l.c, k, bytes, C.size_t(len(value)))
	})
}

// Commit sends the values that were put to the server.
func (l *Library) Commit(ctx context.Context) error {
	return l.doCall(ctx, "PMIx_Commit", func() C.int { return C.fpmix_commit(l.c) })
}

// Get returns the value of p under key, of the process or of the server. With limit 0 it asks the
// server of this node (PMIX_IMMEDIATE), which has the values of its own processes, and those of
// others that were requested before. With a limit, in whole seconds and at least one, that server
// asks the server of p's node, and waits until p has put the value (PMIX_TIMEOUT). Without a value
// the result is an Error with NotFound or Timeout.
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
		var got C.fpmix_result
		if err := l.check(call, C.fpmix_get(l.c, ns, C.uint32_t(p.Rank), k, toSeconds(limit), &got)); err != nil {
			return Value{}, err
		}
		defer C.free(unsafe.Pointer(got.bytes))
		return goValue(&got)
	})
}

func goValue(got *C.fpmix_result) (Value, error) {
	if got.n > math.MaxInt32 {
		return Value{}, fmt.Errorf("a value of %d bytes", uint64(got.n))
	}
	return Value{
		Kind: Kind(got.kind), Type: int(got._type), Number: int64(got.number),
		Bytes: C.GoBytes(unsafe.Pointer(got.bytes), C.int(got.n)),
	}, nil
}

// toSeconds rounds up, because 0 means no limit.
func toSeconds(d time.Duration) C.int {
	return C.int(min(int64((d+time.Second-1)/time.Second), math.MaxInt32))
}

// Fence returns when all of these ranks of a namespace, including the caller, have called it with
// the same list. All callers need the same order, and mixing a wildcard with ranks hangs. An absent
// member ends the fence after limit, with Timeout in all members (4.2.2), or with Timeout in one
// and success in the others (5.0.7). A dead member may count as present.
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

// Construct is a Fence that makes a group and draws a context id. The server of 4.2.2 crashes
// (SIGSEGV) when the limit passes, which may end the job.
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

// Psets returns the names of the process sets, separated by commas.
func (l *Library) Psets(ctx context.Context) (string, error) {
	const call = "PMIx_Query_info"
	v, err := runCall(ctx, l.calls, call, func() (Value, error) {
		var got C.fpmix_result
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

// Nodes returns the names of the nodes of a namespace, separated by commas. It asks the server of
// this node.
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

// goProcs copies a list.
func goProcs(list *C.fpmix_proc, n C.size_t) []Proc {
	var all []Proc
	for i := range unsafe.Slice(list, n) {
		all = append(all, goProc(&unsafe.Slice(list, n)[i]))
	}
	return all
}

// Watch registers for events with that code, which NextEvent returns. A code is registered once,
// because events would be duplicated otherwise.
func (l *Library) Watch(ctx context.Context, code Status) error {
	return l.doCall(ctx, "PMIx_Register_event_handler", func() C.int { return C.fpmix_watch(l.c, C.int(code)) })
}

// NextEvent removes and returns the oldest event. ok is false if there is none. It does not block.
// Events belong to the process, and each is returned once.
func (*Library) NextEvent() (e Event, ok bool) {
	var n C.fpmix_event
	if C.fpmix_next(&n) == 0 {
		return Event{}, false
	}
	return Event{Code: Status(n.code), Proc: goProc(&n.proc)}, true
}

// DroppedEvents returns the number of events that were dropped for lack of room.
func (*Library) DroppedEvents() uint64 { return uint64(C.fpmix_dropped()) }

// EventFile returns a file with eight readable bytes when there may be events. A read takes them
// from all other holders of the file. The caller closes it.
func (*Library) EventFile() (*os.File, error) {
	fd := C.fpmix_event_fd()
	if fd < 0 {
		return nil, os.NewSyscallError("eventfd", syscall.Errno(-fd))
	}
	return os.NewFile(uintptr(fd), "events of libpmix"), nil
}

func goProc(p *C.fpmix_proc) Proc {
	return Proc{Namespace: C.GoString(&p.nspace[0]), Rank: uint32(p.rank)}
}
