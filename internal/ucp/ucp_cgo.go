//go:build cgo

package ucp

/*
#cgo LDFLAGS: -ldl
#cgo noescape ferry_ucp_send
#cgo nocallback ferry_ucp_send
#cgo noescape ferry_ucp_recv
#cgo nocallback ferry_ucp_recv
#cgo noescape ferry_ucp_recv_look
#cgo nocallback ferry_ucp_recv_look
#cgo noescape ferry_ucp_probe
#cgo nocallback ferry_ucp_probe
#cgo noescape ferry_ucp_recv_claimed
#cgo nocallback ferry_ucp_recv_claimed
#cgo noescape ferry_ucp_cancel
#cgo nocallback ferry_ucp_cancel
#cgo noescape ferry_ucp_flush
#cgo nocallback ferry_ucp_flush
#cgo noescape ferry_ucp_kept
#cgo nocallback ferry_ucp_kept
#cgo noescape ferry_ucp_changes
#cgo nocallback ferry_ucp_changes
#cgo noescape ferry_ucp_poll
#cgo nocallback ferry_ucp_poll
#cgo noescape ferry_ucp_arm
#cgo nocallback ferry_ucp_arm
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"unsafe"

	"github.com/ferrympi/ferry/internal/elfcheck"
	"github.com/ferrympi/ferry/internal/rawsys"
)

// Event and ferry_ucp_event have the same size.
var (
	_ [unsafe.Sizeof(Event{}) - C.sizeof_ferry_ucp_event]struct{}
	_ [C.sizeof_ferry_ucp_event - unsafe.Sizeof(Event{})]struct{}
)

// The constants of ucp.go and abi.h are equal. Otherwise an index is not 0, and does not compile.
var _ = [...]struct{}{
	[1]struct{}{}[NoMemory-C.FUCS_ERR_NO_MEMORY], [1]struct{}{}[Unreachable-C.FUCS_ERR_UNREACHABLE],
	[1]struct{}{}[Truncated-C.FUCS_ERR_MESSAGE_TRUNCATED], [1]struct{}{}[NoDevice-C.FUCS_ERR_NO_DEVICE],
	[1]struct{}{}[Canceled-C.FUCS_ERR_CANCELED], [1]struct{}{}[EndpointTimeout-C.FUCS_ERR_ENDPOINT_TIMEOUT], [1]struct{}{}[NoResult-C.FERRY_UCP_NO_RESULT], [1]struct{}{}[NoSlot-C.FERRY_UCP_NO_SLOT], [1]struct{}{}[MaxCopied-C.FERRY_UCP_SHORT],
	[1]struct{}{}[MaxSaved-C.FERRY_UCP_KEPT],
	[1]struct{}{}[CutLonger-C.FERRY_UCP_CUT], [1]struct{}{}[DropLonger-C.FERRY_UCP_WHOLE], [1]struct{}{}[Abandonable-C.FERRY_UCP_ABANDONABLE],
}

// Library is a loaded UCX.
type Library struct{ c *C.ferry_ucp_lib }

var loaded = struct {
	sync.Mutex
	libs map[string]*Library
}{libs: map[string]*Library{}}

// Built returns nil if this program can load UCX, and the reason otherwise.
func Built() error { return nil }

// Setenv sets a variable in the C library's environment, which UCX reads when it is loaded. os.Getenv and child processes are unaffected.
func Setenv(name, value string) {
	n, v := C.CString(name), C.CString(value)
	defer C.free(unsafe.Pointer(n))
	defer C.free(unsafe.Pointer(v))
	C.setenv(n, v, 1)
}

func loadedFrom(path string) *Library {
	loaded.Lock()
	defer loaded.Unlock()
	return loaded.libs[path]
}

// Load loads the library. path is a file, or a name that the dynamic linker resolves. The library stays loaded, and a second Load of the same path
// returns it again. Load may block in a file system without blocking other threads (elfcheck).
func Load(path string) (*Library, error) {
	if l := loadedFrom(path); l != nil {
		return l, nil
	}
	if err := elfcheck.Check(path, filepath.Join(cmp.Or(os.Getenv("UCX_MODULE_DIR"), "ucx"), "*.so*")); err != nil {
		return nil, err
	}
	loaded.Lock()
	defer loaded.Unlock()
	if l := loaded.libs[path]; l != nil {
		return l, nil
	}
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var why [512]C.char
	var c *C.ferry_ucp_lib
	if C.ferry_ucp_load(name, &c, &why[0], C.size_t(len(why))) != 0 {
		return nil, loadError(path, C.GoString(&why[0]))
	}
	loaded.libs[path] = &Library{c}
	return loaded.libs[path], nil
}

// Version returns the version of the library.
func (l *Library) Version() Version {
	var major, minor, release C.uint
	C.ferry_ucp_version(l.c, &major, &minor, &release)
	return Version{int(major), int(minor), int(release)}
}

// Text returns the library's text for a status.
func (l *Library) Text(s Status) string {
	return cmp.Or(C.GoString(C.ferry_ucp_error(l.c, C.int(s))), "no text")
}

func (l *Library) fail(call string, code C.int) error {
	return &Error{call, Status(code), l.Text(Status(code))}
}

// Worker sends and receives messages. The caller assigns a slot number to each operation. An operation uses its slot from the call to its Event, and a
// claimed message keeps the slot of its probe.
type Worker struct {
	c   *C.ferry_ucp_worker
	lib *Library
	// call contains the arguments of the current call, in C memory.
	call *C.ferry_ucp_call
	// stack is for short calls without cgo. With nil all calls use cgo.
	stack *rawsys.Stack
}

// Open makes a context of UCX with the settings, which opens devices. With waitFD its worker has a descriptor (FD). The caller must Close it, even if it is
// never started.
func (l *Library) Open(settings []Setting, waitFD bool) (*Worker, error) {
	list := C.calloc(C.size_t(len(settings)+1), C.sizeof_ferry_ucp_setting)
	if list == nil {
		return nil, l.fail("memory", C.FUCS_ERR_NO_MEMORY)
	}
	defer C.free(list)
	c := unsafe.Slice((*C.ferry_ucp_setting)(list), len(settings))
	for i, s := range settings {
		c[i].name, c[i].value = C.CString(s.Name), C.CString(s.Value)
		defer C.free(unsafe.Pointer(c[i].name))
		defer C.free(unsafe.Pointer(c[i].value))
	}
	call := (*C.ferry_ucp_call)(C.calloc(1, C.sizeof_ferry_ucp_call))
	if call == nil {
		return nil, l.fail("memory", C.FUCS_ERR_NO_MEMORY)
	}
	var step *C.char
	w := &Worker{lib: l, call: call}
	if r := C.ferry_ucp_open(l.c, (*C.ferry_ucp_setting)(list), C.int(len(settings)), boolToC(waitFD), &w.c, &step); r != 0 {
		C.free(unsafe.Pointer(call))
		failed := C.GoString(step)
		if slices.ContainsFunc(settings, func(s Setting) bool { return s.Name == failed }) {
			failed = "ucp_config_modify(" + failed + ")"
		}
		return nil, l.fail(failed, r)
	}
	call.worker = w.c
	return w, nil
}

// Resources returns the transports that the context may use.
func (w *Worker) Resources() ([]Resource, error) {
	var text *C.char
	if r := C.ferry_ucp_info(w.c, &text); r != 0 {
		return nil, w.lib.fail("ucp_context_print_info", r)
	}
	defer C.free(unsafe.Pointer(text))
	return parseResources(C.GoString(text)), nil
}

// Start makes the worker. Before Start and after its error, only Resources and Close may be called.
func (w *Worker) Start() error {
	var step *C.char
	if r := C.ferry_ucp_start(w.c, &step); r != 0 {
		return w.lib.fail(C.GoString(step), r)
	}
	return nil
}

// Close closes the worker and its context. Operations in progress end without an Event, and the caller owns their buffers when it returns.
func (w *Worker) Close() {
	if w.c != nil {
		C.ferry_ucp_close(w.c)
		C.free(unsafe.Pointer(w.call))
		w.c, w.call = nil, nil
		if w.stack != nil {
			w.stack.Free()
			w.stack = nil
		}
	}
}

// Address returns the address of the worker for Connect by peers.
func (w *Worker) Address() ([]byte, error) {
	var p unsafe.Pointer
	var n C.size_t
	if r := C.ferry_ucp_address(w.c, &p, &n); r != 0 {
		return nil, w.lib.fail("ucp_worker_get_address", r)
	}
	defer C.ferry_ucp_free_address(w.c, p)
	return C.GoBytes(p, C.int(n)), nil
}

// AddSlots adds slots, and returns their total number.
func (w *Worker) AddSlots() (int, error) {
	n := C.ferry_ucp_grow(w.c)
	if n < 0 {
		return 0, w.lib.fail("memory", n)
	}
	return int(n), nil
}

// FD returns the descriptor of a worker that was opened with waitFD.
func (w *Worker) FD() int { return int(C.ferry_ucp_fd(w.c)) }

// Arm reports whether the descriptor will become readable with the next event. Otherwise an event may be pending.
func (w *Worker) Arm() bool { return C.ferry_ucp_arm(w.c) == 0 }

// addressRoom is the number of zero bytes behind an address while UCX, which takes no length, decodes it.
const addressRoom = 64 << 10

// Endpoint is a connection to a peer. The zero Endpoint is invalid.
type Endpoint struct{ c unsafe.Pointer }

// IsValid reports whether the endpoint is valid.
func (e Endpoint) IsValid() bool { return e.c != nil }

// Connect makes an endpoint to the process with an Address, which UCX does not validate. It progresses the worker first. With peerMode, an Event with number
// reports the failure of the peer, and every send ends.
func (w *Worker) Connect(address []byte, number uint32, peerMode bool) (Endpoint, error) {
	room := C.calloc(1, C.size_t(len(address)+addressRoom))
	if room == nil {
		return Endpoint{}, w.lib.fail("memory", C.FUCS_ERR_NO_MEMORY)
	}
	defer C.free(room)
	copy(unsafe.Slice((*byte)(room), len(address)), address)
	var e Endpoint
	if r := C.ferry_ucp_connect(w.c, (*C.char)(room), C.uint32_t(number), boolToC(peerMode), &e.c); r != 0 {
		return Endpoint{}, w.lib.fail("ucp_ep_create", r)
	}
	return e, nil
}

// boolToC converts a bool for C.
func boolToC(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

// startResult converts the result of a started operation.
func startResult(r C.int) (done bool, code Status) {
	if r < 0 {
		return false, Status(r)
	}
	return r == 1, 0
}

// Disconnect closes an endpoint in peer mode at once, which ends its operations with errors. With done there is no Event.
func (w *Worker) Disconnect(slot uint32, e Endpoint) (done bool, code Status) {
	return startResult(C.ferry_ucp_disconnect(w.c, C.uint32_t(slot), e.c))
}

// Flush completes when all messages to an endpoint have left. With done there is no Event.
func (w *Worker) Flush(slot uint32, e Endpoint) (done bool, code Status) {
	return startResult(C.ferry_ucp_flush(w.c, C.uint32_t(slot), e.c))
}

// first returns the address of a buffer.
func first(buf []byte) *C.char { return (*C.char)(unsafe.Pointer(unsafe.SliceData(buf))) }

// BypassCgo makes calls that transfer up to MaxCopied bytes without cgo, if that is possible. Go's scheduler does not notice such a call, so the library must have
// proven that it does not hang: a hanging call would stop the whole process.
func (w *Worker) BypassCgo() {
	if w.stack == nil {
		w.stack, _ = rawsys.NewStack() // Without a stack all calls use cgo.
	}
}

// The functions that are called without cgo.
var (
	sendNowAt  = unsafe.Pointer(C.ferry_ucp_send_now)
	sendAt     = unsafe.Pointer(C.ferry_ucp_send)
	recvAt     = unsafe.Pointer(C.ferry_ucp_recv)
	recvLookAt = unsafe.Pointer(C.ferry_ucp_recv_look)
	pollAt     = unsafe.Pointer(C.ferry_ucp_poll)
)

// Send sends a message. A synchronous one completes when a receive has matched it. With done it is in flight, and there is no Event. Otherwise buf must
// not move before the Event, unless it has at most MaxCopied bytes.
func (w *Worker) Send(slot uint32, e Endpoint, buf []byte, tag uint64, synchronous bool) (done bool, code Status) {
	raceRead(buf)
	c := w.call
	c.slot, c.ep, c.n, c.tag, c.flag = C.uint32_t(slot), e.c, C.size_t(len(buf)), C.uint64_t(tag), C.int32_t(boolToC(synchronous))
	if w.stack != nil && len(buf) <= MaxCopied {
		return startResult(C.int(w.stack.Call(sendAt, unsafe.Pointer(c), unsafe.Pointer(first(buf)), nil)))
	}
	return startResult(C.ferry_ucp_send(c, first(buf), nil))
}

// SendNow sends a message of up to MaxSendNow bytes, and reports whether it has left. Otherwise it has no effect, and the caller uses Send.
func (w *Worker) SendNow(e Endpoint, buf []byte, tag uint64) bool {
	if w.stack == nil {
		return false
	}
	c := w.call
	c.ep, c.n, c.tag = e.c, C.size_t(len(buf)), C.uint64_t(tag)
	return w.stack.Call(sendNowAt, unsafe.Pointer(c), unsafe.Pointer(first(buf)), nil) != 0
}

// Recv posts a receive. It ignores the tag bits that are not set in mask. It always completes with an Event. If the Length of the Event exceeds buf, buf
// contains the beginning of the message.
func (w *Worker) Recv(slot uint32, buf []byte, tag, mask uint64, into BufferUse) {
	c := w.receive(slot, buf, tag, mask, into)
	if w.stack != nil && len(buf) <= MaxCopied {
		w.stack.Call(recvAt, unsafe.Pointer(c), unsafe.Pointer(first(buf)), nil)
		return
	}
	C.ferry_ucp_recv(c, first(buf), nil)
}

func (w *Worker) receive(slot uint32, buf []byte, tag, mask uint64, into BufferUse) *C.ferry_ucp_call {
	c := w.call
	c.slot, c.n, c.tag, c.mask, c.flag = C.uint32_t(slot), C.size_t(len(buf)), C.uint64_t(tag), C.uint64_t(mask), C.int32_t(into)
	return c
}

// RecvAndPoll is Recv followed by Poll until there is an event, at most looks times. It costs one call of C.
func (w *Worker) RecvAndPoll(slot uint32, buf []byte, tag, mask uint64, into BufferUse, events []Event, looks int) int {
	c := w.receive(slot, buf, tag, mask, into)
	c.room, c.looks = C.int32_t(len(events)), C.int32_t(looks)
	if w.stack != nil && len(buf) <= MaxCopied {
		return w.stack.Call(recvLookAt, unsafe.Pointer(c), unsafe.Pointer(first(buf)), unsafe.Pointer(unsafe.SliceData(events)))
	}
	return int(C.ferry_ucp_recv_look(c, first(buf), (*C.ferry_ucp_event)(unsafe.Pointer(unsafe.SliceData(events)))))
}

// Probe probes for a message that Recv would receive. With claim the message is removed from matching, and kept for RecvClaimed with the same slot.
func (w *Worker) Probe(slot uint32, tag, mask uint64, claim bool) (message Event, found bool) {
	found = C.ferry_ucp_probe(w.c, C.uint32_t(slot), C.uint64_t(tag), C.uint64_t(mask), boolToC(claim), (*C.ferry_ucp_event)(unsafe.Pointer(&message))) != 0
	return message, found
}

// RecvClaimed receives the message that a probe with slot has claimed, and completes like Recv.
func (w *Worker) RecvClaimed(slot uint32, buf []byte, into BufferUse) {
	C.ferry_ucp_recv_claimed(w.c, C.uint32_t(slot), first(buf), C.size_t(len(buf)), C.int(into))
}

// Cancel requests the withdrawal of a receive. Its Event contains the result.
func (w *Worker) Cancel(slot uint32) { C.ferry_ucp_cancel(w.c, C.uint32_t(slot)) }

// Abandon detaches the buffer of a receive in progress, and reports whether that was possible, which it always is with Abandonable. The Event may still
// come.
func (w *Worker) Abandon(slot uint32) bool { return C.ferry_ucp_abandon(w.c, C.uint32_t(slot)) != 0 }

// SaveMessages saves the contents of messages of n bytes, up to MaxSaved.
func (w *Worker) SaveMessages(n int) { C.ferry_ucp_keep(w.c, C.size_t(n)) }

// SavedMessage returns the n bytes of a receive whose Event has come, or nil if they were not saved. The result is valid until the slot is reused.
func (w *Worker) SavedMessage(slot uint32, n int) []byte {
	at := C.ferry_ucp_kept(w.c, C.uint32_t(slot))
	if at == nil {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(at)), n)
}

// InvalidateRegistrations invalidates UCX's registrations of the buffer of a completed operation, because other memory may be mapped there later.
func (w *Worker) InvalidateRegistrations(buf []byte) {
	C.ferry_ucp_changes(w.c, first(buf), C.size_t(len(buf)))
}

// Poll progresses the worker and returns the number of events, at most len(events). long must be set while messages above MaxCopied bytes are in progress, which
// the call may copy.
func (w *Worker) Poll(events []Event, long bool) int {
	w.call.room = C.int32_t(len(events))
	if w.stack != nil && !long {
		return w.stack.Call(pollAt, unsafe.Pointer(w.call), nil, unsafe.Pointer(unsafe.SliceData(events)))
	}
	return int(C.ferry_ucp_poll(w.call, nil, (*C.ferry_ucp_event)(unsafe.Pointer(unsafe.SliceData(events)))))
}

// Describe returns the text for a status.
func (w *Worker) Describe(s Status) string { return fmt.Sprintf("%s (%d)", w.lib.Text(s), s) }
