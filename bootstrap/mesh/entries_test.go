package mesh

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
)

func TestEntry_IsInvalid_ErrorNamesProcess(t *testing.T) {
	_, port := closedPort(t)
	good := entry{nonce: 1, hostID: 7, port: port, addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}
	unixOnly := entry{nonce: 1, hostID: 7}
	for want, b := range map[string][]byte{
		"is empty":                            {},
		"has version 99":                      {99},
		"truncated entry":                     good.encode()[:20],
		"bytes too many":                      append(good.encode(), 0),
		"invalid entry":                       (&entry{nonce: 1, port: 1}).encode(),
		"no process answers at its addresses": good.encode(),
		"has only a Unix socket":              unixOnly.encode(),
		"has an address of 5 bytes":           append((&entry{nonce: 1, port: 1, addrs: []netip.Addr{{}}}).encode()[:entryHeaderSize], 5, 1, 2, 3, 4, 5),
		"truncated entry: incomplete":         append((&entry{nonce: 1, port: 1, addrs: []netip.Addr{{}}}).encode()[:entryHeaderSize], 16, 1),
	} {
		j := newTestJob(t, unix, 2)
		c := j.open(1)
		j.entries[j.proc(0)] = b
		err := c.Fence(t.Context(), j.world(), "t")
		if !errors.Is(err, framework.ErrTransport) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), j.proc(0).String()) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// closedPort returns a port of this host without a listener.
func closedPort(t *testing.T) (net.Addr, uint16) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	return l.Addr(), uint16(l.Addr().(*net.TCPAddr).Port)
}

// The key identifies the process of an entry.
func TestConnect_OtherProcessListens_IsRefused(t *testing.T) {
	onBothNetworks(t, func(t *testing.T, on network) {
		j := newTestJob(t, on, 3)
		cs := j.openAll()
		e, err := decodeEntry(j.entries[j.proc(0)])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := rand.Read(e.key[:]); err != nil {
			t.Fatal(err)
		}
		j.entries[j.proc(0)] = e.encode()
		err = cs[1].Fence(t.Context(), j.world(), "t")
		if !errors.Is(err, errWrongKey) || !strings.Contains(err.Error(), j.proc(0).String()) {
			t.Errorf("fence: %v", err)
		}
		if err := cs[0].Fence(t.Context(), j.world()[:1], "alone"); err != nil {
			t.Error(err)
		}
	})
}

func TestLauncherFails_CallsThatNeedIt_End(t *testing.T) {
	j := newTestJob(t, unix, 3)
	cs := j.openAll()
	j.fence("start", cs[:2]...)
	down := errors.New("the launcher is gone")
	j.mu.Lock()
	j.launcherErr = down
	j.mu.Unlock()
	if _, err := cs[1].Get(t.Context(), j.proc(2), "k"); !errors.Is(err, down) || !errors.Is(err, framework.ErrTransport) {
		t.Errorf("get of a process that was never met: %v", err)
	}
	j.fence("those who have met go on", cs[:2]...)
	b := newAddressBook(1)
	b.launcherErr = down
	if _, err := Open(t.Context(), bootstrap.Env{}, launcher{b, 0}); !errors.Is(err, down) || !errors.Is(err, framework.ErrTransport) {
		t.Errorf("open: %v", err)
	}
}

func TestOpen_SecondClient_IsErrConfig(t *testing.T) {
	j := newTestJob(t, unix, 1)
	j.open(0)
	if _, err := Open(t.Context(), bootstrap.Env{}, launcher{j.addressBook, 0}); !errors.Is(err, framework.ErrConfig) {
		t.Errorf("%v", err)
	}
}

func TestReopen_ManyTimes_KeepsNumberOfDescriptors(t *testing.T) {
	onBothNetworks(t, func(t *testing.T, on network) {
		j := newTestJob(t, on, 2)
		stay := j.open(1)
		count := func() int {
			fds, err := os.ReadDir("/proc/self/fd")
			if err != nil {
				t.Fatal(err)
			}
			return len(fds)
		}
		var before int
		for round := range 200 {
			c := j.open(0)
			j.fence("t", c, stay)
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			if round == 20 {
				before = count()
			}
		}
		if after := count(); after > before+5 {
			t.Errorf("%d descriptors, %d before", after, before)
		}
	})
}

func TestJoinAttemptErrors_SeveralAddresses_DropsConclusiveOnes(t *testing.T) {
	refused, wrong, late := syscall.ECONNREFUSED, fmt.Errorf("%w: %w", errWrongKey, errPermanent), errors.New("late")
	for _, c := range []struct {
		errs           []error
		refused, final bool
	}{
		{nil, false, true},
		{[]error{refused, refused}, true, false},
		{[]error{refused, wrong}, false, true},
		{[]error{refused, late}, false, false},
		{[]error{wrong, late, refused}, false, false},
	} {
		err := joinAttemptErrors(c.errs)
		if errors.Is(err, refused) != c.refused || errors.Is(err, errPermanent) != c.final {
			t.Errorf("%v becomes %v", c.errs, err)
		}
	}
}
