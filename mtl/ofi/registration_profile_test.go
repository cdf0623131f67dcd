package ofi_test

import (
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl"
)

// registrationLog reads the registrations and their ends from the provider.
type registrationLog struct {
	t    testing.TB
	r, w int
}

func newRegistrationLog(t testing.TB) *registrationLog {
	t.Helper()
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // After the modules have closed.
		unix.Close(fds[0])
		unix.Close(fds[1])
	})
	return &registrationLog{t, fds[0], fds[1]}
}

func (r *registrationLog) fault() string { return fmt.Sprintf("registers=%d", r.w) }

// count returns the numbers of registrations that began and ended since the last call.
func (r *registrationLog) count() (begun, ended int) {
	r.t.Helper()
	buf := make([]byte, 64<<10)
	n, err := unix.Read(r.r, buf)
	if err != nil && !errors.Is(err, unix.EAGAIN) {
		r.t.Fatal(err)
	}
	for _, b := range buf[:max(n, 0)] {
		if b == '+' {
			begun++
		} else {
			ended++
		}
	}
	return begun, ended
}

// lasting returns registered memory, and a function that deregisters it.
func (m *member) lasting(all []*member, n int) (memory []byte, end func() (held bool, err error)) {
	m.t.Helper()
	r, ok := framework.As[mtl.Registrar](m.m)
	if !ok {
		m.t.Fatal("the module registers nothing")
	}
	o, memory := newOnceOp(), make([]byte, n)
	if err := r.Register(&o.Op, memory); err != nil {
		m.t.Fatal(err)
	}
	if pollUntilDone(m.t, all, o); o.Err != nil {
		m.t.Fatal(o.Err)
	}
	return memory, func() (bool, error) {
		o := newOnceOp()
		if err := r.Deregister(&o.Op, memory); err != nil {
			return false, err
		}
		pollUntilDone(m.t, all, o)
		return o.Found, o.Err
	}
}

// Other buffers are registered for one operation, if the provider requires it.
func TestRegister_Memory_IsRegisteredOnce(t *testing.T) {
	const messages, size = 20, 100_000
	for _, fault := range []string{"", "mr_local"} {
		for _, provider := range []string{"cxi", "verbs;ofi_rxm", "efa"} {
			t.Run(provider+","+fault, func(t *testing.T) {
				book := newRegistrationLog(t)
				lib := useProfiles(t, provider, fault, book.fault())
				all := members(t, 2, withProvider(lib, provider))
				a, b := all[0], all[1]
				exchange := func(from, to []byte) {
					t.Helper()
					r, err := b.receive(a, 3, to)
					if err != nil {
						t.Fatal(err)
					}
					s, err := a.send(b, 3, from, mtl.Standard)
					if err != nil {
						t.Fatal(err)
					}
					if pollUntilDone(t, all, s, r); errors.Join(s.Err, r.Err) != nil {
						t.Fatal(s.Err, r.Err)
					}
				}
				exchange(make([]byte, 8), make([]byte, 8)) // The first contact.
				pollUntilDone(t, all)
				a.m.Poll()
				b.m.Poll()
				book.count()
				from, endFrom := a.lasting(all, 2*size)
				to, endTo := b.lasting(all, 2*size)
				for i := range messages {
					exchange(from[i:i+size], to[2*i:2*i+size])
				}
				if begun, ended := book.count(); begun != 2 || ended != 0 {
					t.Errorf("%d registrations of 2 pieces of memory, %d have ended", begun, ended)
				}
				for range messages {
					exchange(make([]byte, size), make([]byte, size))
				}
				a.m.Poll()
				b.m.Poll()
				want := map[string]int{"mr_local": 2 * messages}[fault]
				if begun, ended := book.count(); begun != want || ended != want {
					t.Errorf("%d registrations of other memory, %d have ended; want %d", begun, ended, want)
				}
				for _, end := range []func() (bool, error){endFrom, endTo} {
					if held, err := end(); held || err != nil {
						t.Fatal(held, err)
					}
				}
				if begun, ended := book.count(); begun != 0 || ended != 2 {
					t.Errorf("%d registrations, and %d ends, when both are given back", begun, ended)
				}
			})
		}
	}
}

// The network may read the memory until the endpoint closes. Deregister reports that without blocking.
func TestDeregister_SendToFailedPeer_KeepsMemory(t *testing.T) {
	book := newRegistrationLog(t)
	lib := useProfiles(t, "verbs;ofi_rxm", "silent", book.fault())
	all := members(t, 2, withProvider(lib, "verbs;ofi_rxm"))
	a, b := all[0], all[1]
	if err := exchange(t, a, b, 8); err != nil { // Later messages leave at once.
		t.Fatal(err)
	}
	memory, end := a.lasting(all, 1<<20)
	s, err := a.send(b, 3, memory, mtl.Standard) // It is never received.
	if err != nil {
		t.Fatal(err)
	}
	if _, err := end(); !errors.Is(err, framework.ErrPending) {
		t.Errorf("given back while the send goes on: %v", err)
	}
	a.m.Forget(a.to(b), framework.ErrProcFailed)
	pollUntilDone(t, all, s)
	if held, err := end(); !held || err != nil {
		t.Error(held, err)
	}
	if _, ended := book.count(); ended != 0 {
		t.Error("its registration has ended while the network may read it")
	}
	a.m.Close()
	if _, ended := book.count(); ended != 1 {
		t.Errorf("%d registrations have ended with the endpoint", ended)
	}
}

// FI_MR_LOCAL in all hints would exclude other providers, and without it this one would be missing.
func TestInfos_RequiresDescriptors_IsReported(t *testing.T) {
	for provider, faults := range map[string][]string{"verbs;ofi_rxm": {"mr_local"}, "cxi": nil} {
		lib := useProfiles(t, provider, faults...)
		all := members(t, 2, withProvider(lib, provider))
		for _, n := range []int{0, 1, 5000, 100_000, 2 << 20} {
			if err := exchange(t, all[0], all[1], n); err != nil {
				t.Errorf("%s: %d bytes: %v", provider, n, err)
			}
		}
	}
}
