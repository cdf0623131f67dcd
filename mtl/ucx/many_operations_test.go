package ucx_test

import (
	"encoding/binary"
	"flag"
	"testing"
)

var full = flag.Bool("full", false, "run the tests at their full size")

// The receiver polls only after all sends.
func TestSend_Thousands_KeepOrder(t *testing.T) {
	needUCX(t)
	receives, sends := 2000, 20_000
	if *full {
		receives, sends = 100_000, 1_000_000
	}
	for _, class := range []string{"shm", "tcp"} {
		t.Run(class, func(t *testing.T) {
			a, b := members(t, "libucp.so.0", class)
			both := []*member{a, b}
			post := func(n int) (all []*testOp, bufs [][]byte) {
				for i := range n {
					buf := make([]byte, 8)
					all, bufs = append(all, b.receive(a, int32(i%5), buf)), append(bufs, buf)
				}
				return all, bufs
			}
			queue := func(n int) (all []*testOp) {
				for i := range n {
					all = append(all, a.send(b, int32(i%5), binary.LittleEndian.AppendUint64(nil, uint64(i))))
				}
				return all
			}
			check := func(received []*testOp, bufs [][]byte) {
				for i, o := range received {
					if got := binary.LittleEndian.Uint64(bufs[i]); o.Err != nil || got != uint64(i) {
						t.Fatalf("receive %d got message %d: %v", i, got, o.Err)
					}
				}
			}
			received, bufs := post(receives)
			sent := queue(receives)
			pollUntilDone(t, both, append(sent, received...)...)
			check(received, bufs)

			sent = queue(sends)
			received, bufs = post(sends)
			pollUntilDone(t, both, append(sent, received...)...)
			check(received, bufs)
		})
	}
}
