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

var rank1 = life(1)

// shared is a pair whose rank 0 sends and may write, with a share of buf at rank 1.
func shared(t *testing.T, buf []byte, write writeVM) (sender, receiver *module, s btl.Share) {
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

// TestBothSidesClaimEachPieceOnce: one copies from the front, the other one from the end, at
// the same time, and the message is whole.
func TestBothSidesClaimEachPieceOnce(t *testing.T) {
	for _, size := range []int{1, 4097, leastChunk, leastChunk + 1, 100_000, 1 << 20, 5<<20 + 3} {
		want, got := make([]byte, size), make([]byte, size)
		for i := range want {
			want[i] = byte(i*31>>3) | 1
		}
		sender, _, s := shared(t, got, cma.Write)
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
			t.Errorf("%d bytes, of which the receiver copied %d: not whole", size, claimed)
		}
	}
}

// TestEndedShareIsNotWritten: neither with its own description, nor when its place is another
// share's.
func TestEndedShareIsNotWritten(t *testing.T) {
	buf, other, src := make([]byte, 100_000), make([]byte, 100_000), bytes.Repeat([]byte{1}, 100_000)
	sender, receiver, s := shared(t, buf, cma.Write)
	old := s.Remote()
	if _, err := sender.Write(rank1, old, src); err != nil {
		t.Fatal(err)
	}
	if !s.End() {
		t.Fatal("it is not over, and nobody writes")
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

// TestShareWhoseWriterIsGoneIsOver: it has ended its path, or died, with a piece that it had claimed.
func TestShareWhoseWriterIsGoneIsOver(t *testing.T) {
	died := exec.Command("true")
	if err := died.Run(); err != nil {
		t.Skip(err)
	}
	for name, goes := range map[string]func(*module, *share){
		"it has left": func(sender *module, _ *share) { sender.out[rank1].Close() },
		"it has died": func(_ *module, s *share) { s.pid = died.Process.Pid },
	} {
		sender, _, s := shared(t, make([]byte, 100_000), cma.Write)
		mine := s.(*share)
		c, _ := mine.claims()
		next := c
		next.Back++
		if !mine.place.Claim(c, next) || s.End() {
			t.Fatal("over, and the sender is writing")
		}
		if goes(sender, mine); !s.End() {
			t.Errorf("%s, and the share is not over", name)
		}
	}
}

// TestRefusedWriteLeavesItsPieceToTheReceiver, once, with the reason in the notes.
func TestRefusedWriteLeavesItsPieceToTheReceiver(t *testing.T) {
	calls := 0
	buf := make([]byte, 1<<20)
	sender, _, s := shared(t, buf, func(int, []byte, uint64) (int, error) { calls++; return 0, unix.EPERM })
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
		t.Errorf("after %d calls it may write again", calls)
	}
	if notes := strings.Join(sender.Notes(rank1), "\n"); !strings.Contains(notes, "ptrace_scope") {
		t.Errorf("the notes are %q", notes)
	}
}

// TestShareThatMakesNoSenseIsAnErrorOrOver: all of a description, and the word that both
// change, is the other one's.
func TestShareThatMakesNoSenseIsAnErrorOrOver(t *testing.T) {
	le := binary.LittleEndian
	buf := make([]byte, 100_000)
	sender, receiver, s := shared(t, buf, func(int, []byte, uint64) (int, error) {
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
	word := receiver.box.Slot(receiver.in[rank0].index).Share(0)
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
		t.Error("it does not end")
	}
}

// TestSharesOfAPeerAreTwo, and come back.
func TestSharesOfAPeerAreTwo(t *testing.T) {
	_, receiver, s := shared(t, make([]byte, 10), cma.Write)
	second := receiver.Share(rank0, make([]byte, 10))
	if second == nil || receiver.Share(rank0, make([]byte, 10)) != nil {
		t.Error("not two")
	}
	if !s.End() || receiver.Share(rank0, make([]byte, 10)) == nil {
		t.Error("the first does not come back")
	}
	if receiver.Share(life(5), make([]byte, 10)) != nil || receiver.Share(rank0, nil) != nil {
		t.Error("a share for nobody, or of nothing")
	}
}
