package ucx_test

import (
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/libtest"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/ucx"
	"github.com/ferrympi/ferry/test/nettest"
)

// The other host drops all packets. connect(2) would block for two minutes.
func TestSend_FirstContactHostDropsPackets_DoesNotBlock(t *testing.T) {
	const name = "TestSend_FirstContactHostDropsPackets_DoesNotBlock"
	if libtest.IsChild() {
		sendFirst(t, os.Getenv("PEER"))
		return
	}
	needUCX(t)
	h := nettest.New(t)
	output := func(host int, env ...string) string {
		t.Helper()
		var out strings.Builder
		cmd := libtest.Child(t, name, env...)
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := h.On(host, cmd.Start); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil { // A child that is blocked is killed.
			t.Fatalf("host %d: %v\n%s", host, err, &out)
		}
		return out.String()
	}
	_, blob, _ := strings.Cut(output(1), "blob ")
	blob, _, _ = strings.Cut(blob, "\n")
	h.Run(0, fmt.Sprintf("ip neigh replace %v lladdr 02:00:00:00:00:99 dev eth0 nud permanent", h.Addr(1, 0)))
	if out := output(0, "PEER="+blob); !strings.Contains(out, "closed") {
		t.Errorf("%s", out)
	}
}

// sendFirst opens a module over eth0. Without a peer it prints its blob. Otherwise it sends the peer a message.
func sendFirst(t *testing.T, peer string) {
	p := ucx.Defaults()
	ucx.Set(p, []string{"tcp"}, []string{"eth0"}, "peer", "poll")
	rank := uint32(1)
	if peer != "" {
		rank = 0
	}
	m, err := openWith(p, rank)
	if err != nil {
		t.Fatal(err)
	}
	if peer == "" {
		fmt.Printf("blob %x\n", m.Blob())
	} else {
		blob, err := hex.DecodeString(peer)
		if err != nil {
			t.Fatal(err)
		}
		to, err := m.Connect(framework.Peer{Incarnation: incarnation(1), Proc: framework.Proc{Namespace: "job", Rank: 1}, Blob: blob})
		if err != nil {
			t.Fatal(err)
		}
		o := newTestOp()
		if _, err := m.Send(&o.Op, to, mtl.Envelope{CID: 1, Tag: 1}, make([]byte, 100_000), mtl.Standard); err != nil {
			t.Error(err)
		}
		fmt.Println("the send returned")
		for range 100 {
			m.Poll()
		}
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	fmt.Println("closed")
}
