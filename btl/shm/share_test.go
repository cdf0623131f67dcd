package shm

import (
	"bytes"
	"encoding/binary"
	"math"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/btl/segment"
	"github.com/ferrympi/ferry/internal/cma"
	"github.com/ferrympi/ferry/internal/needs"
)

var rank1 = incarnation(1)

// newSharedPair returns a pair whose rank 0 sends and may write, with a share of buf at rank 1.
func newSharedPair(t *testing.T, buf []byte, write writeFunc) (sender, receiver *module, s btl.Share) {
	t.Helper()
	_, sender, receiver = connected(t, component{new(segment.Heap), cma.Read, write}, "auto")
	if err := sender.CanWrite(rank1); err != nil {
		needs.Missing(t, "process_vm_writev does not work here: %v", err)
	}
	if s = receiver.Share(rank0, buf); s == nil {
		t.Fatal("no share")
	}
	return sender, receiver, s
}

// One side copies from the front and the other one from the end, at the same time. The message is
// complete.
func TestShare_BothSidesCopy_EachChunkIsClaimedOnce(t *testing.T) {
	for _, size := range []int{1, 4097, minChunk, minChunk + 1, 100_000, 1 << 20, 5<<20 + 3} {
		want, got := make([]byte, size), make([]byte, size)
		for i := range want {
			want[i] = byte(i*31>>3) | 1
		}
		sender, _, s := newSharedPair(t, got, cma.Write)
		var both sync.WaitGroup
		both.Go(func() {
			for more := true; more; {
				var err error
				if more, err = sender.Write(rank1, s.Remote(), want); err != nil {
					t.Error(err)
				}
			}
		})
		claimed := 0
		for {
			offset, n := s.Claim()
			if n == 0 {
				break
			}
			copy(got[offset:int(offset)+n], want[offset:])
			claimed += n
		}
		both.Wait()
		if left, writing, stopped := s.State(); left || writing || stopped {
			t.Errorf("%d bytes: left %v, writing %v, stopped %v", size, left, writing, stopped)
		}
		if !s.End() || !bytes.Equal(got, want) {
			t.Errorf("%d bytes, of which the receiver copied %d: incomplete message", size, claimed)
		}
	}
}

// The writer uses the ended share's own description, and its slot after another share has opened
// there.
func TestShare_Ended_IsNotWritten(t *testing.T) {
	buf, other, src := make([]byte, 100_000), make([]byte, 100_000), bytes.Repeat([]byte{1}, 100_000)
	sender, receiver, s := newSharedPair(t, buf, cma.Write)
	old := s.Remote()
	if _, err := sender.Write(rank1, old, src); err != nil {
		t.Fatal(err)
	}
	if !s.End() {
		t.Fatal("End returned false without a writer")
	}
	clear(buf)
	next := receiver.Share(rank0, other)
	if more, err := sender.Write(rank1, old, src); more || err != nil {
		t.Errorf("a write into an ended share: %v, %v", more, err)
	}
	if !bytes.Equal(buf, make([]byte, len(buf))) || !bytes.Equal(other, buf) {
		t.Error("something was written")
	}
	if more, err := sender.Write(rank1, next.Remote(), src); !more || err != nil || other[len(other)-1] != 1 {
		t.Errorf("a write into the next share: %v, %v", more, err)
	}
}

// The writer has ended its path or died with a claimed chunk.
func TestShareEnd_WriterGone_Ends(t *testing.T) {
	died := exec.Command("true")
	if err := died.Run(); err != nil {
		t.Skip(err)
	}
	for name, goes := range map[string]func(*module, *share){
		"it has left": func(sender *module, _ *share) { sender.endpoints[rank1].Close() },
		"it has died": func(_ *module, s *share) { s.peerPID = died.Process.Pid },
	} {
		sender, _, s := newSharedPair(t, make([]byte, 100_000), cma.Write)
		mine := s.(*share)
		c, _ := mine.loadClaims()
		next := c
		next.Back++
		if !mine.words.Claim(c, next) || s.End() {
			t.Fatal("over, and the sender is writing")
		}
		if goes(sender, mine); !s.End() {
			t.Errorf("%s, and the share is not over", name)
		}
	}
}

// It happens once, and the reason is in the notes.
func TestWrite_CallFails_ReturnsChunkToReceiver(t *testing.T) {
	calls := 0
	buf := make([]byte, 1<<20)
	sender, _, s := newSharedPair(t, buf, func(int, []byte, uint64) (int, error) { calls++; return 0, unix.EPERM })
	if more, err := sender.Write(rank1, s.Remote(), buf); more || err == nil || !strings.Contains(err.Error(), "process_vm_writev") {
		t.Errorf("more %v, %v", more, err)
	}
	if left, writing, stopped := s.State(); !left || writing || !stopped {
		t.Errorf("left %v, writing %v, stopped %v", left, writing, stopped)
	}
	all := 0
	for {
		_, n := s.Claim()
		if n == 0 {
			break
		}
		all += n
	}
	if all != len(buf) || !s.End() {
		t.Errorf("%d of %d bytes are left to the receiver", all, len(buf))
	}
	if sender.CanWrite(rank1) == nil || calls != 1 {
		t.Errorf("CanWrite succeeds again after %d calls", calls)
	}
	if notes := strings.Join(sender.Notes(rank1), "\n"); !strings.Contains(notes, "ptrace_scope") {
		t.Errorf("the notes are %q", notes)
	}
}

// The peer controls the description and the word that both sides change.
func TestWrite_InvalidShare_ReturnsErrorOrEnds(t *testing.T) {
	le := binary.LittleEndian
	buf := make([]byte, 100_000)
	sender, receiver, s := newSharedPair(t, buf, func(int, []byte, uint64) (int, error) {
		t.Error("something is written")
		return 0, unix.EPERM
	})
	for at, bad := range map[int][]uint64{8: {0, math.MaxUint64}, 16: {0, 1 << 40, math.MaxUint64}, 24: {0, 1, 99_999, 100_001, math.MaxUint64}} {
		for _, x := range bad {
			r := s.Remote()
			le.PutUint64(r[at:], x)
			if more, err := sender.Write(rank1, r, buf); more || err == nil {
				t.Errorf("%d at %d: %v, %v", x, at, more, err)
			}
		}
	}
	for _, x := range []uint32{2, math.MaxUint32} {
		r := s.Remote()
		le.PutUint32(r[0:], x)
		if _, err := sender.Write(rank1, r, buf); err == nil {
			t.Errorf("place %d is there", x)
		}
	}
	word := receiver.inbox.Slot(receiver.inboundPaths[rank0].slotIndex).Share(0)
	for _, c := range [][3]uint32{{0, 0, 0}, {1, 5, 0}, {1, 0, 1 << 19}, {2, 0, 0}, {1<<24 - 1, 1<<20 - 1, 1<<20 - 1}} {
		old := word.Claims()
		now := old
		now.Number, now.Front, now.Back = c[0], c[1], c[2]
		word.Claim(old, now)
		if _, n := s.Claim(); n != 0 {
			t.Errorf("%v: a piece of %d bytes", c, n)
		}
		if left, writing, _ := s.State(); left || writing {
			t.Errorf("%v: left %v, writing %v", c, left, writing)
		}
	}
	if !s.End() {
		t.Error("the share does not end")
	}
}

// Ended shares are available again.
func TestShare_ThirdOfAPeer_IsRefused(t *testing.T) {
	_, receiver, s := newSharedPair(t, make([]byte, 10), cma.Write)
	second := receiver.Share(rank0, make([]byte, 10))
	if second == nil || receiver.Share(rank0, make([]byte, 10)) != nil {
		t.Error("not two")
	}
	if !s.End() || receiver.Share(rank0, make([]byte, 10)) == nil {
		t.Error("the first does not come back")
	}
	if receiver.Share(incarnation(5), make([]byte, 10)) != nil || receiver.Share(rank0, nil) != nil {
		t.Error("Share succeeded for an unknown peer or an empty buffer")
	}
}
