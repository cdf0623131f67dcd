package tcp

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/framework/scripttest"
)

// The scripts are sequences of frames and links with these commands.
//
//	commit SIZE...        commit frames
//	up LINK NUMBER        add a link; the peer has received all frames before NUMBER
//	down LINK             lose a link
//	write LINK BYTES      the socket takes some bytes, or all
//	acked NUMBER          the peer has received all frames before NUMBER
//	arrive NUMBER         a frame arrives, and is received if it is in order
//	send-ack              queue an ack
//	request-ack NUMBER    the peer waits for the ack of all frames before NUMBER
//	number NUMBER         check the number of a header
//	must-ack              reports whether an ack is due
//	retransmitted         prints the number of retransmitted frames
func TestPath_Scripts(t *testing.T) {
	scripttest.Run(t, "testdata/path_*.txt", func() func(string) ([]string, error) {
		p := &path{sendWindow: sendWindow{byteLimit: 4 << 10}, recvWindow: recvWindow{maxFramesAhead: maxFramesInFlight(4 << 10)}}
		return func(line string) ([]string, error) { return play(p, line) }
	})
}

func play(p *path, line string) ([]string, error) {
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	words := strings.Fields(line)
	number := func(i int) (n int) { fmt.Sscan(words[i], &n); return n }
	freed := func() {
		if all := popAllAcked(p); all != nil {
			say("free %v, %d of the window used", all, p.bytesUsed)
		}
	}
	switch words[0] {
	case "commit":
		for i := range words[1:] {
			n := number(i + 1)
			if !p.hasRoom(headerSize + n) {
				say("no room")
				continue
			}
			say("frame %d", p.push(frame{copiedBytes: make([]byte, headerSize+n)}))
		}
	case "up":
		if err := p.linkUp(number(1), uint64(number(2))); err != nil {
			say("%v", err)
		}
		freed()
	case "down":
		p.linkDown(number(1))
		say("retransmit %v", p.retransmitQueue)
	case "acked":
		if err := p.recordAck(uint64(number(1))); err != nil {
			say("%v", err)
		}
		freed()
	case "arrive":
		v := p.classify(uint64(number(1)))
		say("%s", [...]string{"in order", "out of order", "duplicate"}[v])
		if v == arrivalInOrder {
			p.recordReceived(headerSize)
		}
	case "request-ack":
		p.recordAckRequest(uint64(number(1)))
	case "number":
		if err := p.checkNumber(uint64(number(1))); err != nil {
			say("%v", err)
		}
	case "must-ack":
		say("%t", p.mustAck(p.byteLimit))
	case "retransmitted":
		say("%d frames", p.framesRetransmitted)
		return out, nil
	case "send-ack":
		if !p.queueAck(false) {
			say("not now")
		}
	case "write":
		// The assigned frames follow.
		link := number(1)
		c := &p.queuesBySlot[link]
		for {
			total := queuedBytes(p, link)
			bytes := total
			if words[2] != "all" {
				bytes = min(total, number(2))
			}
			p.recordWritten(link, bytes)
			if c.isSocketFull = bytes < total; c.isSocketFull || words[2] != "all" || len(c.queuedFrames) == 0 {
				break
			}
		}
		freed()
	default:
		return nil, fmt.Errorf("no such command: %s", line)
	}
	for i := p.assignFrames(); i >= 0 && words[0] != "arrive"; {
		c := &p.queuesBySlot[i]
		say("link %d writes %v%s", i, c.queuedFrames, map[bool]string{true: " and an ack"}[len(c.pendingAck) > 0])
		break
	}
	return out, nil
}

// popAllAcked removes the acked frames, and returns their numbers.
func popAllAcked(p *path) (all []uint64) {
	for {
		n := p.firstUnacked
		if _, ok := p.popAcked(); !ok {
			return all
		}
		all = append(all, n)
	}
}

// queuedBytes returns the number of bytes that a link has to write.
func queuedBytes(p *path, link int) (n int) {
	for _, b := range p.appendPieces(link, nil) {
		n += len(b)
	}
	return n
}

// A model of sockets keeps written frames until the link is lost.
func TestPath_LinksComeAndGo_DeliversOnceInOrder(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		from, to := &path{sendWindow: sendWindow{byteLimit: 3000}}, &path{}
		const links, frames = 3, 200
		var wires [links][]uint64 // Written frames that have not arrived.
		var aside []uint64        // Frames that arrived out of order.
		var got []uint64
		deliver := func() {
			for {
				i := slices.Index(aside, to.nextExpected)
				if i < 0 {
					return
				}
				aside = slices.Delete(aside, i, i+1)
				got = append(got, to.nextExpected)
				to.recordReceived(1)
			}
		}
		steps := 0
		for len(got) < frames {
			if steps++; steps > 100000 {
				t.Fatalf("seed %d: %d frames of %d came", seed, len(got), frames)
			}
			link := rnd.IntN(links)
			switch rnd.IntN(12) {
			case 0, 1, 2:
				if from.nextNumber < frames && from.hasRoom(100) {
					from.push(frame{copiedBytes: make([]byte, headerSize+rnd.IntN(70))})
				}
			case 3, 4, 5:
				if i := from.assignFrames(); i >= 0 {
					size := queuedBytes(from, i)
					before := slices.Clone(from.queuesBySlot[i].queuedFrames)
					if n := rnd.IntN(size + 1); n > 0 {
						from.recordWritten(i, n)
					}
					wires[i] = append(wires[i], before[:len(before)-len(from.queuesBySlot[i].queuedFrames)]...)
				}
			case 6, 7, 8:
				if len(wires[link]) > 0 {
					switch n := wires[link][0]; to.classify(n) {
					case arrivalInOrder:
						got = append(got, n)
						to.recordReceived(1)
					case arrivalOutOfOrder:
						if !slices.Contains(aside, n) {
							aside = append(aside, n)
						}
					}
					wires[link] = wires[link][1:]
					deliver()
				}
			case 9:
				if err := from.recordAck(to.nextExpected); err != nil {
					t.Fatal(err)
				}
				popAllAcked(from)
			case 10:
				if from.isUp(link) && rnd.IntN(4) == 0 {
					from.linkDown(link)
					wires[link] = nil
				}
			case 11:
				if !from.isUp(link) {
					if err := from.linkUp(link, to.nextExpected); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		for i, n := range got {
			if n != uint64(i) {
				t.Fatalf("seed %d: frame %d came as number %d", seed, n, i)
			}
		}
	}
}

// An accepted header equals its own encoding.
func FuzzHeader(f *testing.F) {
	var b [headerSize]byte
	(&header{bodySize: 100, kind: kindFrame, gatherSize: 20, number: 7, ackedUpTo: 3}).encode(b[:])
	f.Add(b[:])
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) < headerSize {
			return
		}
		h, err := readHeader(in, 1<<17)
		if err != nil {
			return
		}
		if h.bodySize < 0 || h.bodySize > 1<<17 || h.gatherSize > h.bodySize {
			t.Fatalf("%+v", h)
		}
		var again [headerSize]byte
		h.encode(again[:])
		if string(again[:]) != string(in[:headerSize]) {
			t.Fatalf("%x became %x", in[:headerSize], again)
		}
	})
}
