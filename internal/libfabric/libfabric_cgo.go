//go:build cgo

package libfabric

/*
#cgo LDFLAGS: -ldl
#cgo noescape ferry_tsend
#cgo nocallback ferry_tsend
#cgo noescape ferry_trecv
#cgo nocallback ferry_trecv
#cgo noescape ferry_peek
#cgo nocallback ferry_peek
#cgo noescape ferry_send
#cgo nocallback ferry_send
#cgo noescape ferry_recv
#cgo nocallback ferry_recv
#cgo noescape ferry_cancel
#cgo nocallback ferry_cancel
#cgo noescape ferry_poll
#cgo nocallback ferry_poll
#cgo noescape ferry_trywait
#cgo nocallback ferry_trywait
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"unsafe"

	"github.com/ferrympi/ferry/internal/elfcheck"
)

type handle = unsafe.Pointer

// Event and ferry_event have the same size.
var (
	_ [unsafe.Sizeof(Event{}) - C.sizeof_ferry_event]struct{}
	_ [C.sizeof_ferry_event - unsafe.Sizeof(Event{})]struct{}
)

// The constants of libfabric.go and abi.h are equal. Otherwise an index is not 0, and does not compile.
var _ = [...]struct{}{
	[1]struct{}{}[Again-C.FFI_EAGAIN], [1]struct{}{}[NoMemory-C.FFI_ENOMEM], [1]struct{}{}[NoMessage-C.FFI_ENOMSG], [1]struct{}{}[NoData-C.FFI_ENODATA],
	[1]struct{}{}[Canceled-C.FFI_ECANCELED], [1]struct{}{}[Truncated-C.FFI_ETRUNC],
	[1]struct{}{}[SocketAddress-C.FFI_SOCKADDR], [1]struct{}{}[IPv4Address-C.FFI_SOCKADDR_IN],
	[1]struct{}{}[IPv6Address-C.FFI_SOCKADDR_IN6], [1]struct{}{}[IBAddress-C.FFI_SOCKADDR_IB],
	[1]struct{}{}[TextAddress-C.FFI_ADDR_STR],
	[1]struct{}{}[NoSlot-C.FERRY_NO_SLOT], [1]struct{}{}[noResult+C.FERRY_NO_RESULT],
	[1]struct{}{}[WithData-C.FERRY_WITH_DATA], [1]struct{}{}[Inject-C.FERRY_INJECT],
	[1]struct{}{}[MaxDiscarded-C.FERRY_SPILL_BYTES], [1]struct{}{}[Claim-C.FERRY_CLAIM], [1]struct{}{}[DiscardExcess-C.FERRY_SPILL],
}

// Library is a loaded libfabric.
type Library struct{ c *C.ferry_lib }

var loaded = struct {
	sync.Mutex
	libs map[string]*Library
}{libs: map[string]*Library{}}

// Built returns nil if this program can load libfabric, and the reason otherwise.
func Built() error { return nil }

// Setenv sets a variable in the C library's environment, which loaded libraries read. os.Getenv and child processes are unaffected.
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

// providerFiles returns the patterns of providers in separate files.
func providerFiles() (all []string) {
	for _, dir := range filepath.SplitList(cmp.Or(os.Getenv("FI_PROVIDER_PATH"), "libfabric")) {
		all = append(all, filepath.Join(dir, "*-fi.so"))
	}
	return all
}

// Load loads the library. path is a file, or a name that the dynamic linker resolves. The library stays loaded, and a second Load of the same path
// returns it again. Load may block in a file system without blocking other threads (elfcheck).
func Load(path string) (*Library, error) {
	if l := loadedFrom(path); l != nil {
		return l, nil
	}
	if err := elfcheck.Check(path, providerFiles()...); err != nil {
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
	var c *C.ferry_lib
	if C.ferry_load(name, &c, &why[0], C.size_t(len(why))) != 0 {
		return nil, loadError(path, C.GoString(&why[0]))
	}
	loaded.libs[path] = &Library{c}
	return loaded.libs[path], nil
}

// Version returns the version of the library.
func (l *Library) Version() Version {
	v := C.ferry_version(l.c)
	return Version{int(v >> 16), int(v & 0xffff)}
}

func (l *Library) fail(call string, code C.int) error {
	e := Errno(max(code, -code))
	return &Error{call, e, l.Text(e)}
}

// Text returns the library's text for an error number.
func (l *Library) Text(e Errno) string {
	return cmp.Or(C.GoString(C.ferry_error(l.c, C.int(e))), "no text")
}

// Infos is a list of offers. Free releases its memory.
type Infos struct {
	List []Info
	lib  *Library
	raw  unsafe.Pointer
}

// Providers returns the names of the initialized providers, with or without offers on this machine, and of layers such as ofi_rxm. A provider
// that found no device when it started may be missing.
func (l *Library) Providers() ([]string, error) {
	var list unsafe.Pointer
	if r := C.ferry_providers(l.c, &list); r != 0 {
		return nil, l.fail("fi_getinfo", r)
	}
	defer C.ferry_free_infos(l.c, list)
	var names []string
	at := list
	var c C.ferry_info
	for C.ferry_next_info(&at, &c) != 0 {
		names = append(names, C.GoString(c.provider))
	}
	return names, nil
}

// Infos lists the offers with reliable, ordered tagged and untagged messages, in the library's order of preference: those of one provider and of layers over
// it, or of all providers for "". An entry may be repeated with and without completion data or HasDirectedReceive. Only the given providers are
// queried. An empty list is no error.
func (l *Library) Infos(provider string) (*Infos, error) {
	var name *C.char
	if provider != "" {
		name = C.CString(provider)
		defer C.free(unsafe.Pointer(name))
	}
	infos := &Infos{lib: l}
	var step *C.char
	if r := C.ferry_infos(l.c, name, &infos.raw, &step); -r == C.int(NoData) {
		return infos, nil
	} else if r != 0 {
		return nil, l.fail(C.GoString(step), r)
	}
	at := infos.raw
	var c C.ferry_info
	for C.ferry_next_info(&at, &c) != 0 {
		i := Info{
			Provider: C.GoString(c.provider), Fabric: C.GoString(c.fabric), Domain: C.GoString(c.domain),
			TagFormat: uint64(c.tag_format), MaxMessage: uint64(c.max_message), Inject: count(c.inject),
			CQData: count(c.cq_data_bytes), TxSize: count(c.tx_size), RxSize: count(c.rx_size), RxParts: count(c.rx_parts),
			AddressFormat: uint32(c.address_format),
			Address:       C.GoBytes(c.address, C.int(c.address_bytes)),
			IsLocalOnly:   c.local_only != 0, HasDirectedReceive: c.directed != 0, RequiresRegistration: c.registers != 0,
			raw: unsafe.Pointer(c.raw),
		}
		if c.has_pci != 0 {
			i.PCI = fmt.Sprintf("%04x:%02x:%02x.%x", c.pci_domain, c.pci_bus, c.pci_device, c.pci_function)
		}
		infos.List = append(infos.List, i)
	}
	return infos, nil
}

// count converts a size. The largest value means no limit.
func count(n C.uint64_t) int { return int(min(n, math.MaxInt)) }

// Free releases the list. Its entries must not be passed to Open afterwards.
func (i *Infos) Free() {
	C.ferry_free_infos(i.lib.c, i.raw)
	i.raw, i.List = nil, nil
}

// Endpoint sends and receives messages. The caller assigns a slot number to each operation. An operation uses its slot from the call to its Event, and
// a claimed message keeps the slot of its peek.
type Endpoint struct {
	c   *C.ferry_ep
	lib *Library
}

// Open opens an endpoint that is ready to receive. With waitFD it has a descriptor (FD). With directed, receives and peeks may have the address of a peer.
// The completion queue has the given number of entries. Some providers lose further completions, so there must not be more operations in
// progress.
func (l *Library) Open(info *Info, waitFD, directed bool, entries int) (*Endpoint, error) {
	var wait, byAddress C.int
	if waitFD {
		wait = 1
	}
	if directed {
		byAddress = 1
	}
	var step *C.char
	e := &Endpoint{lib: l}
	if r := C.ferry_open(l.c, info.raw, wait, byAddress, C.size_t(entries), &e.c, &step); r != 0 {
		return nil, l.fail(C.GoString(step), r)
	}
	return e, nil
}

// Close closes the endpoint. Operations in progress end without an Event, and the caller owns their buffers when it returns.
func (e *Endpoint) Close() {
	if e.c != nil {
		C.ferry_close(e.c)
		e.c = nil
	}
}

// Name returns the address of the endpoint for Insert by peers.
func (e *Endpoint) Name() ([]byte, error) {
	buf := make([]byte, 512) // the longest addresses have some 100 bytes
	n := C.size_t(len(buf))
	if r := C.ferry_name(e.c, unsafe.Pointer(&buf[0]), &n); r != 0 {
		return nil, e.lib.fail("fi_getname", r)
	}
	if n == 0 || n > C.size_t(len(buf)) {
		return nil, e.lib.fail("fi_getname", C.FERRY_NO_RESULT)
	}
	return buf[:n], nil
}

// AddSlots adds slots, and returns their total number.
func (e *Endpoint) AddSlots() (int, error) {
	n := C.ferry_grow(e.c)
	if n < 0 {
		return 0, e.lib.fail("memory", n)
	}
	return int(n), nil
}

// Insert adds the address of a peer, and returns its number.
func (e *Endpoint) Insert(address []byte) (uint64, error) {
	var a C.uint64_t
	if r := C.ferry_insert(e.c, unsafe.Pointer(unsafe.SliceData(address)), &a); r != 0 {
		return 0, e.lib.fail("fi_av_insert", r)
	}
	return uint64(a), nil
}

// Remove removes the address of a peer.
func (e *Endpoint) Remove(address uint64) { C.ferry_remove(e.c, C.uint64_t(address)) }

// Region is registered memory. It ends with its endpoint.
type Region struct{ c *C.ferry_region }

// Register registers buf, which must not move. It may take milliseconds per 100 MB, and waits for no peer.
func (e *Endpoint) Register(buf []byte) (*Region, error) {
	r := new(Region)
	if code := C.ferry_register(e.c, first(buf), C.size_t(len(buf)), &r.c); code != 0 {
		return nil, e.lib.fail("fi_mr_reg", code)
	}
	return r, nil
}

// Deregister ends a registration. After an error the registration remains.
func (e *Endpoint) Deregister(r *Region) error {
	if code := C.ferry_deregister(e.c, r.c); code != 0 {
		return e.lib.fail("fi_close", code)
	}
	return nil
}

// SetRegion sets the region of the buffers of a slot's operations, or none for nil.
func (e *Endpoint) SetRegion(slot uint32, r *Region) {
	var c *C.ferry_region
	if r != nil {
		c = r.c
	}
	C.ferry_use(e.c, C.uint32_t(slot), c)
}

// FD returns the descriptor of an endpoint that was opened with waitFD.
func (e *Endpoint) FD() int { return int(C.ferry_fd(e.c)) }

// TryWait reports whether the descriptor will become readable with the next event. Otherwise an event may be pending.
func (e *Endpoint) TryWait() bool { return C.ferry_trywait(e.c) == 0 }

// first returns the address of a buffer.
func first(buf []byte) *C.char { return (*C.char)(unsafe.Pointer(unsafe.SliceData(buf))) }

// TSend sends a tagged message.
func (e *Endpoint) TSend(slot uint32, buf []byte, to, tag, data uint64, k Kind) Errno {
	return Errno(-C.ferry_tsend(e.c, C.uint32_t(slot), first(buf), C.size_t(len(buf)), C.uint64_t(to), C.uint64_t(tag), C.uint64_t(data), C.int(k)))
}

// TRecv posts a receive of a tagged message. It ignores the tag bits that are set in ignore.
func (e *Endpoint) TRecv(slot uint32, buf []byte, from, tag, ignore uint64, k Kind) Errno {
	return Errno(-C.ferry_trecv(e.c, C.uint32_t(slot), first(buf), C.size_t(len(buf)), C.uint64_t(from), C.uint64_t(tag), C.uint64_t(ignore), C.int(k)))
}

// Peek probes for a message that TRecv would receive. Without one its Event has NoMessage.
func (e *Endpoint) Peek(slot uint32, from, tag, ignore uint64, k Kind) Errno {
	return Errno(-C.ferry_peek(e.c, C.uint32_t(slot), C.uint64_t(from), C.uint64_t(tag), C.uint64_t(ignore), C.int(k)))
}

// Send sends an untagged message.
func (e *Endpoint) Send(slot uint32, buf []byte, to uint64, k Kind) Errno {
	return Errno(-C.ferry_send(e.c, C.uint32_t(slot), first(buf), C.size_t(len(buf)), C.uint64_t(to), C.int(k)))
}

// Recv posts a receive of an untagged message from any peer.
func (e *Endpoint) Recv(slot uint32, buf []byte) Errno {
	return Errno(-C.ferry_recv(e.c, C.uint32_t(slot), first(buf), C.size_t(len(buf))))
}

// Cancel requests the withdrawal of an operation. Its Event contains the result.
func (e *Endpoint) Cancel(slot uint32) { C.ferry_cancel(e.c, C.uint32_t(slot)) }

// Poll progresses the endpoint and returns the number of events, at most 64 and at most len(events). An error is a failure of the completion
// queue.
func (e *Endpoint) Poll(events []Event) (int, Errno) {
	n := C.ferry_poll(e.c, (*C.ferry_event)(unsafe.Pointer(unsafe.SliceData(events))), C.int(len(events)))
	if n < 0 {
		return 0, Errno(-n)
	}
	return int(n), 0
}

// Describe returns the text for the error of an event.
func (e *Endpoint) Describe(ev *Event) string {
	s := e.lib.Text(ev.Err)
	if ev.Provider != 0 {
		if own := C.GoString(C.ferry_cq_error(e.c, C.int(ev.Provider))); own != "" && own != s {
			s += " (" + own + ")"
		}
	}
	return s
}
