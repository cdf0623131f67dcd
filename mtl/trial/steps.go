package trial

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl"
)

// lengths are those, in bytes, that providers transfer in different ways: within a packet,
// in a buffer or in several, and by themselves from the sender's memory.
var lengths = []int{6, 12 << 10, 64 << 10, largest}

const largest = 1 << 20

type step struct {
	name string
	run  func()
}

// steps are those of the test, in their order.
func (t *tester) steps() []step {
	return []step{
		{"a short message", func() { t.exchange(8, mtl.Standard) }},
		{"a longer message", func() { t.exchange(t.atMost(64<<10), mtl.Standard) }},
		{"messages from and to memory whose pages have changed", t.pages},
		{"a synchronous message", func() { t.exchange(8, mtl.Synchronous) }},
		{"messages that differ in one bit of id, source, endpoint or tag", t.bits},
		{"a message that is too long for its receive", t.truncate},
		{"a message after others that wait", t.behind},
		{"cancel", func() { t.cancel(t.receive(t.any(), make([]byte, 8))) }},
		{"probe and claim", t.probe},
		{"claimed messages and one that overtakes them", t.claims},
		{t.mixedName() + ", posted before their messages", func() { t.mixed(true) }},
		{t.mixedName() + ", posted after their messages", func() { t.mixed(false) }},
		{"a control message", t.control},
		{"the last completions", func() { t.until(t.m.Idle) }},
	}
}

// highest is an envelope that uses every bit of the layout.
func (t *tester) highest() mtl.Envelope {
	c := t.m.Caps()
	return mtl.Envelope{CID: uint32(1<<c.CIDBits - 1), Source: int32(1<<c.SourceBits - 1), Tag: int32(1<<c.TagBits - 1), Endpoint: uint16(1<<c.EndpointBits - 1)}
}

// any matches all messages with the highest id.
func (t *tester) any() mtl.Envelope {
	return mtl.Envelope{CID: t.highest().CID, Source: mtl.AnySource, Tag: mtl.AnyTag}
}

// exchange sends a message to a receive that takes any, past one that must not
// take it.
func (t *tester) exchange(n int, mode mtl.Mode) {
	e, sent, got := t.highest(), bytes.Repeat([]byte{0xa5}, n), make([]byte, n)
	low := e
	low.Tag--
	other := t.receive(low, nil)
	receive := t.receive(t.any(), got)
	t.wait(receive, t.send(e, sent, mode))
	if receive.Source != e.Source || receive.Tag != e.Tag || receive.Bytes != int64(n) || !bytes.Equal(got, sent) {
		t.failf("source %d, tag %d, %d bytes were sent, and %d, %d, %d arrived", e.Source, e.Tag, n, receive.Source, receive.Tag, receive.Bytes)
	}
	if other.over {
		t.failf("it met a receive with another tag")
	}
	t.cancel(other)
}

func (t *tester) truncate() {
	for _, n := range []int{16, t.atMost(largest)} {
		for _, room := range []int{n / 2, 0} {
			sent, got := bytes.Repeat([]byte{1}, n), make([]byte, n)
			receive := t.receive(t.highest(), got[:room])
			send := t.send(t.highest(), sent, mtl.Standard)
			t.until(func() bool { return receive.over && send.over })
			switch {
			case !errors.Is(receive.Err, framework.ErrTruncate):
				t.failf("%d bytes into %d: the receive says %v", n, room, receive.Err)
			case !bytes.Equal(got[:room], sent[:room]):
				t.failf("%d bytes into %d: those arrived changed", n, room)
			case !bytes.Equal(got[room:], make([]byte, n-room)):
				t.failf("%d bytes into %d: it wrote beyond the buffer", n, room)
			}
		}
	}
}

// atMost is a length, as far as the provider takes it.
func (t *tester) atMost(n int) int { return int(min(int64(n), t.m.Caps().MaxMessage)) }

// behind sends messages that nobody receives yet, and one that must get past them.
func (t *tester) behind() {
	const many = 32
	e := t.highest()
	each := func(i int) mtl.Envelope { return mtl.Envelope{CID: e.CID, Source: e.Source, Tag: int32(i)} }
	last := t.receive(each(many), nil)
	var all []*trial
	for i := range many + 1 {
		all = append(all, t.send(each(i), nil, mtl.Standard))
	}
	t.wait(last)
	for i := range many {
		all = append(all, t.receive(each(i), nil))
	}
	t.wait(all...)
}

func (t *tester) probe() {
	e := t.highest()
	if t.look(false).Found {
		t.failf("it found a message where there is none")
	}
	send := t.send(e, []byte("probed"), mtl.Standard)
	seen, claimed := t.find(false), t.find(true)
	for _, p := range []*trial{seen, claimed} {
		if p.Source != e.Source || p.Tag != e.Tag || p.Bytes != 6 {
			t.failf("source %d, tag %d, 6 bytes were sent, and it found %d, %d, %d", e.Source, e.Tag, p.Source, p.Tag, p.Bytes)
		}
	}
	got := make([]byte, 6)
	t.receiveClaimed(claimed, got)
	if t.wait(claimed, send); string(got) != "probed" {
		t.failf("the claimed message arrived as %q", got)
	}
}

// claims sends three messages of each length. Two are claimed, then the third is
// received, then the claimed ones are, the second first.
func (t *tester) claims() {
	for _, n := range lengths {
		n := t.atMost(n)
		contents := func(i int) []byte { return bytes.Repeat([]byte{byte(i + 1)}, n) }
		var sends []*trial
		for i := range 3 {
			sends = append(sends, t.send(t.highest(), contents(i), mtl.Standard))
		}
		claimed := []*trial{t.find(true), t.find(true)}
		check := func(i int, o *trial, got []byte) {
			if t.wait(o); !bytes.Equal(got, contents(i)) {
				t.failf("message %d of %d bytes arrived changed", i+1, n)
			}
		}
		got := make([]byte, n)
		check(2, t.receive(t.highest(), got), got)
		for i, p := range slices.Backward(claimed) {
			got := make([]byte, n)
			t.receiveClaimed(p, got)
			check(i, p, got)
		}
		t.wait(sends...)
	}
}

// numbered is a receive of the message with a number, or the send of one.
type numbered struct {
	*trial
	buf []byte
}

func number(i int) []byte { return binary.LittleEndian.AppendUint64(nil, uint64(i)) }

// receiveNext posts the next receive of all.
func (t *tester) receiveNext(all []numbered, e mtl.Envelope) []numbered {
	buf := number(-1)
	return append(all, numbered{t.receive(e, buf), buf})
}

// match waits until each receive has the message with its number. Whatever is matched
// wrongly is seen at once; and who gets none, soon after last, which was sent behind all of
// them, is there.
func (t *tester) match(all []numbered, last *trial) {
	var patience *Patience
	t.until(func() bool {
		waiting := -1
		for i, r := range all {
			switch {
			case !r.over:
				waiting = i
			case r.Err != nil:
				t.err = r.Err
			case !bytes.Equal(r.buf, number(i)):
				t.failf("receive %d of %d got message %d", i+1, len(all), int64(binary.LittleEndian.Uint64(r.buf))+1)
			}
		}
		if waiting < 0 || t.err != nil {
			return true
		}
		if last.over && patience == nil {
			patience = NewPatience(t.Soon)
		}
		if patience != nil && patience.Over() {
			t.failf("receive %d of %d got no message", waiting+1, len(all))
		}
		return false
	})
}

// bits has a receive for each bit of id, source, endpoint and tag, behind one without any.
func (t *tester) bits() {
	c := t.m.Caps()
	at := []mtl.Envelope{{}}
	for i := range c.CIDBits {
		at = append(at, mtl.Envelope{CID: 1 << i})
	}
	for i := range c.SourceBits {
		e := mtl.Envelope{Source: 1 << i}
		if t.Aside { // it travels along and is not matched
			e.CID, e.Tag = 1<<c.CIDBits-1, int32(i)
		}
		at = append(at, e)
	}
	for i := range c.EndpointBits {
		at = append(at, mtl.Envelope{Endpoint: 1 << i})
	}
	for i := range c.TagBits {
		at = append(at, mtl.Envelope{Tag: 1 << i})
	}
	var all []numbered
	var sends []*trial
	for _, e := range at {
		all = t.receiveNext(all, e)
	}
	last := t.receive(t.highest(), nil)
	for i := range at {
		k := (i + 1) % len(at) // the one without any bit goes last
		sends = append(sends, t.send(at[k], number(k), mtl.Standard))
	}
	sends = append(sends, t.send(t.highest(), nil, mtl.Standard))
	t.match(all, last)
	t.wait(append(sends, last)...)
	for i, r := range all {
		t.wait(r.trial)
		if e := at[i]; r.Source != e.Source || r.Tag != e.Tag {
			t.failf("source %d, tag %d were sent, and %d, %d arrived", e.Source, e.Tag, r.Source, r.Tag)
		}
	}
}

// manyMixed is how many receives mixed posts.
const manyMixed = 64

func (t *tester) mixedName() string {
	if t.Aside {
		return "receives with and without an address, in order"
	}
	return "receives from one and from any source, in order"
}

// mixed receives messages from one and from any source, with one and with any tag, posted
// before or after they are sent. All match all, so that the order alone decides.
func (t *tester) mixed(before bool) {
	e := t.highest()
	behind := e
	behind.CID--
	var all []numbered
	post := func() {
		for i := range manyMixed {
			r := e
			if i%3 == 1 { // 3 and 2: the tags differ among those of one kind
				r.Source = mtl.AnySource
			}
			if i%2 == 1 {
				r.Tag = mtl.AnyTag
			}
			all = t.receiveNext(all, r)
		}
	}
	if before {
		post()
	}
	var sends []*trial
	for i := range manyMixed {
		sends = append(sends, t.send(e, number(i), mtl.Standard))
	}
	last := t.receive(behind, nil)
	sends = append(sends, t.send(behind, nil, mtl.Standard))
	if !before {
		t.wait(last)
		post()
	}
	t.match(all, last)
	t.wait(append(sends, last)...)
}

// pages sends a large message twice, from one address to another, and changes between
// them, behind the C library's back, which pages lie there, as Go's runtime does: a
// provider that remembers what it has registered would send or fill the old ones.
func (t *tester) pages() {
	n := t.atMost(largest)
	memory, err := unix.Mmap(-1, 0, 2*n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.failf("memory: %v", err)
		return
	}
	for i := range 2 {
		sent, got := memory[:n], memory[n:]
		for k := range sent {
			sent[k] = byte(i + 1)
		}
		receive := t.receive(t.highest(), got)
		t.wait(receive, t.send(t.highest(), sent, mtl.Standard))
		if t.err == nil && !bytes.Equal(sent, got) {
			t.failf("message %d arrived with other contents", i+1)
		}
		if t.err != nil {
			return // the provider may still have the memory
		}
		if err := unix.Madvise(memory, unix.MADV_DONTNEED); err != nil {
			t.failf("madvise: %v", err)
		}
	}
	unix.Munmap(memory)
}

func (t *tester) control() {
	send := t.start(func(op *mtl.Op) (bool, error) { return t.m.SendControl(op, t.self, []byte("control")) })
	t.until(func() bool { return len(t.heard) > 0 && send.over })
	if t.err == nil && string(t.heard[0]) != "control" {
		t.failf("%q arrived", t.heard[0])
	}
}
