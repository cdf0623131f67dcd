package shm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/btl/segment"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/cma"
	"github.com/ferrympi/ferry/internal/needs"
	"github.com/ferrympi/ferry/internal/shmlayout"
)

// The attacker's inbox has the process id of the victim. The victim's proof is that of the
// attacker, because both have the same nonce.
func TestAttack_PeerNamesAnotherProcess_IsNeitherReadNorWritten(t *testing.T) {
	victim := startChild(t, "cma", t.TempDir(), nil)
	reader := victim.reader
	if err := reader.CanRead(childIncarnation, victim.heap, childSize); err != nil {
		needs.Missing(t, "process_vm_readv does not work here: %v", err)
	}
	victimInbox := reader.remoteInboxOf(childIncarnation).segment.Path()
	attacker := framework.Incarnation{ID: framework.MakeProcID(0, 5), Nonce: childIncarnation.Nonce}
	identity := framework.Proc{Namespace: t.Name(), Rank: 5}
	own := func(path string) segment.Segment {
		seg, err := segment.Files{}.Create(path, segment.PageSize)
		if err != nil {
			t.Fatal(err)
		}
		mapping, err := seg.Map(0, segment.PageSize)
		if err != nil {
			t.Fatal(err)
		}
		shmlayout.Init(mapping.Bytes, 8, attacker.Nonce, uint32(victim.cmd.Process.Pid))
		t.Cleanup(func() { mapping.Close(); seg.Close() })
		return seg
	}
	for name, forge := range map[string]func(path string) error{
		"inbox without a mark": func(path string) error { own(path); return nil },
		"inbox with the attacker's mark": func(path string) error {
			return own(path).Mark(markStart(identity, attacker.Nonce), 4096)
		},
		"link to the victim's inbox": func(path string) error { return os.Link(victimInbox, path) },
	} {
		path := filepath.Join(filepath.Dir(victimInbox), fmt.Sprintf("%s5-%x", jobPrefix(t.Name()), attacker.Nonce))
		if err := forge(path); err != nil {
			t.Fatal(name, err)
		}
		endpoint, err := reader.Connect(framework.Peer{Incarnation: attacker, Proc: identity, Blob: []byte(filepath.Base(path))})
		if err != nil {
			t.Fatal(name, err)
		}
		if err := reader.CanRead(attacker, victim.heap, childSize); err == nil {
			t.Errorf("%s: the victim is read", name)
		} else {
			t.Log(name, err)
		}
		if err := reader.CanWrite(attacker); err == nil {
			t.Errorf("%s: the victim is written", name)
		}
		endpoint.Close()
		reader.Forget(attacker)
		os.Remove(path)
	}
}

// Another process of the user has sent the description and set the claims in the receiver's inbox,
// both of which it can do.
func TestAttack_ForgedShare_IsNotWritten(t *testing.T) {
	const size = 100_000
	message, canary := bytes.Repeat([]byte{1}, size), make([]byte, size)
	claims := func(receiver *module, r btl.Remote) {
		le := binary.LittleEndian
		receiver.inbox.Slot(receiver.inboundPaths[rank0].slotIndex).Share(int(le.Uint32(r[0:]))).Open(le.Uint32(r[4:]))
	}
	for name, forge := range map[string]func(receiver *module, s btl.Share) btl.Remote{
		"another address": func(_ *module, s btl.Share) btl.Remote {
			r := s.Remote()
			binary.LittleEndian.PutUint64(r[8:], cma.Address(canary))
			return r
		},
		"a place without a share": func(receiver *module, s btl.Share) btl.Remote {
			r := s.Remote()
			binary.LittleEndian.PutUint32(r[0:], 1)
			binary.LittleEndian.PutUint64(r[8:], cma.Address(canary))
			claims(receiver, r)
			return r
		},
		"an ended share": func(receiver *module, s btl.Share) btl.Remote {
			r := s.Remote()
			s.End()
			claims(receiver, r)
			return r
		},
		"a share for another sender": func(receiver *module, s btl.Share) btl.Remote {
			mine := s.(*share)
			receiver.shareTable.open(mine.path.slotIndex, mine, rank0.Nonce+1)
			return s.Remote()
		},
	} {
		sender, receiver, s := newSharedPair(t, canary, cma.Write)
		if name != "an ended share" && name != "a share for another sender" {
			s.End()
			s = receiver.Share(rank0, make([]byte, size))
		}
		r := forge(receiver, s)
		if _, err := sender.Write(rank1, r, message); !errors.Is(err, errNotShared) {
			t.Errorf("%s: %v", name, err)
		}
		if !bytes.Equal(canary, make([]byte, size)) {
			t.Errorf("%s: the memory is overwritten", name)
			clear(canary)
		}
	}
}
