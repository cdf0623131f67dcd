package shmlayout

import (
	"bytes"
	"encoding/binary"
	"strconv"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/internal/ring"
)

const nonce = 0x1122334455667788

// newInbox returns the memory of a valid inbox with n slots.
func newInbox(n int) []byte {
	mem := ring.Aligned(Size(n))
	Init(mem, n, nonce, 42)
	return mem
}

func TestAttach_DamagedHeader_ReturnsError(t *testing.T) {
	for name, damage := range map[string]func(mem []byte) []byte{
		"shorter":        func(mem []byte) []byte { return mem[:HeaderSize-1] },
		"no magic":       func(mem []byte) []byte { mem[offMagic]++; return mem },
		"other version":  func(mem []byte) []byte { mem[offVersion]++; return mem },
		"other nonce":    func(mem []byte) []byte { mem[offNonce]++; return mem },
		"no slots":       func(mem []byte) []byte { mem[offSlots] = 0; return mem },
		"too many slots": func(mem []byte) []byte { mem[offSlots]++; return mem },
		"4 billion":      func(mem []byte) []byte { copy(mem[offSlots:], "\xff\xff\xff\xff"); return mem },
	} {
		if _, err := Attach(damage(newInbox(4)), nonce); err == nil || len(err.Error()) < 20 {
			t.Errorf("%s: %v", name, err)
		}
	}
	b, err := Attach(newInbox(4), nonce)
	if err != nil || b.Slots() != 4 || b.Closed() || b.PID() != 42 {
		t.Errorf("%+v %v", b, err)
	}
}

func TestSlot_Transitions_FollowStates(t *testing.T) {
	b, err := Attach(newInbox(1), nonce)
	if err != nil {
		t.Fatal(err)
	}
	s := b.Slot(0)
	if !s.Transition(Free, Claimed) || s.Transition(Free, Claimed) {
		t.Fatal("a slot was claimed twice, or not at all")
	}
	before := b.Requests()
	s.RequestRing(Sender{Rank: 3, World: 4, Nonce: 5, Name: "ferry-1-2"})
	b.Request()
	if b.Requests() == before {
		t.Error("the request counter is unchanged")
	}
	if from, err := s.Sender(); err != nil || from != (Sender{3, 4, 5, "ferry-1-2"}) {
		t.Errorf("%+v %v", from, err)
	}
	if !s.Grant(1<<16, 2048, Overflow|Shrunk) || s.State() != Granted {
		t.Error("not granted")
	}
	if offset, cells, flags := s.Granted(); offset != 1<<16 || cells != 2048 || flags != Overflow|Shrunk {
		t.Errorf("granted %d cells at %d, %b", cells, offset, flags)
	}
	s.SetState(Left)
	if s.Grant(1<<17, 64, 0) || s.State() != Left {
		t.Error("granted to a sender that has left")
	}
}

func TestRefuse_LongReason_IsTruncated(t *testing.T) {
	for _, n := range []int{0, NameMax + 1, ReasonMax, ReasonMax + 1} {
		s := Slot{ring.Aligned(SlotSize)}
		s.RequestRing(Sender{Name: "x"})
		reason := strings.Repeat("r", n)
		s.Refuse(reason)
		if got, want := s.Reason(), strconv.Quote(reason[:min(n, ReasonMax)]); got != want || s.State() != Refused {
			t.Errorf("%d bytes: %s in state %d, want %s", n, got, s.State(), want)
		}
		s.RequestRing(Sender{Rank: 1, Name: "y"})
		if from, err := s.Sender(); err != nil || from != (Sender{Rank: 1, Name: "y"}) {
			t.Errorf("the next request: %+v, %v", from, err)
		}
	}
	s := Slot{bytes.Repeat([]byte{'a'}, SlotSize)} // Without NUL.
	if got := s.Reason(); len(got) != ReasonMax+1+2 {
		t.Errorf("a reason without end: %s", got)
	}
}

func TestSender_Name_IsOnePathElement(t *testing.T) {
	long := strings.Repeat("n", NameMax)
	for name, ok := range map[string]bool{"x": true, "ferry-0-1f-2-3": true, long: true, long + "n": true, // Truncated to NameMax.
		"": false, ".": false, "..": false, ".hidden": false, "a/b": false, "/": false} {
		s := Slot{ring.Aligned(SlotSize)}
		s.RequestRing(Sender{Name: name})
		from, err := s.Sender()
		if (err == nil) != ok || ok && from.Name != name[:min(len(name), NameMax)] {
			t.Errorf("%q: %q %v", name, from.Name, err)
		}
	}
	s := Slot{bytes.Repeat([]byte{'a'}, SlotSize)} // Without NUL.
	if from, err := s.Sender(); err == nil {
		t.Errorf("a name without end is %q", from.Name)
	}
}

// FuzzAttach reads all fields of an inbox of arbitrary bytes.
func FuzzAttach(f *testing.F) {
	whole := newInbox(2)
	b, _ := Attach(whole, nonce)
	b.Slot(0).RequestRing(Sender{Rank: 1, World: 2, Nonce: 3, Name: "ferry-x"})
	b.Slot(1).Grant(1<<40, -1, 1<<31)
	f.Add(bytes.Clone(whole), []byte{0xff})
	f.Add(whole[:HeaderSize], []byte{})
	f.Add(make([]byte, HeaderSize), []byte("name"))
	f.Fuzz(func(t *testing.T, header, slot []byte) {
		mem := ring.Aligned(max(len(header), HeaderSize))
		copy(mem, header)
		// A valid prefix reaches the later checks.
		binary.LittleEndian.PutUint64(mem[offMagic:], magic)
		binary.LittleEndian.PutUint32(mem[offVersion:], Version)
		binary.LittleEndian.PutUint64(mem[offNonce:], nonce)
		b, err := Attach(mem, nonce)
		if err != nil {
			return
		}
		if Size(b.Slots()) > len(mem) {
			t.Fatalf("%d slots in %d bytes", b.Slots(), len(mem))
		}
		b.Closed()
		b.PID()
		for i := range b.Slots() {
			s := b.Slot(i)
			copy(s.mem, slot)
			s.State()
			s.Granted()
			if len(s.Ring()) != ring.HeaderSize {
				t.Fatal("a ring's header of another size")
			}
			if from, err := s.Sender(); err == nil && (from.Name == "" || len(from.Name) > NameMax || strings.ContainsAny(from.Name, "/\x00") || from.Name[0] == '.') {
				t.Fatalf("name %q", from.Name)
			}
		}
	})
}

// FuzzAttachRegion attaches to regions of arbitrary bytes.
func FuzzAttachRegion(f *testing.F) {
	mem := ring.Aligned(RegionHeader + 100)
	InitRegion(mem, nonce, 7, 100)
	f.Add(bytes.Clone(mem[:64]), 100)
	f.Add(make([]byte, 64), 0)
	f.Add(bytes.Repeat([]byte{0xff}, 64), 1)
	f.Fuzz(func(t *testing.T, header []byte, behind int) {
		mem := ring.Aligned(RegionHeader + min(max(behind, 0), 4096))
		copy(mem, header)
		binary.LittleEndian.PutUint64(mem[regMagic:], regionMagic)
		binary.LittleEndian.PutUint32(mem[regVersion:], RegionVersion)
		binary.LittleEndian.PutUint64(mem[regNonce:], nonce)
		binary.LittleEndian.PutUint64(mem[regNumber:], 7)
		r, err := AttachRegion(mem, nonce, 7)
		if err == nil && len(r.Bytes()) > len(mem)-RegionHeader {
			t.Fatalf("%d bytes in a segment of %d", len(r.Bytes()), len(mem))
		}
	})
}
