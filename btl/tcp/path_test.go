package tcp

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/framework/scripttest"
)

// TestScripts replays what happens to frames while links come and go.
//
//	commit SIZE...        frames are committed
//	up LINK HEARD         a link is there; the peer has received all before HEARD
//	down LINK             a link is lost
//	write LINK BYTES      its socket takes so many bytes (all: everything)
//	confirm NUMBER        the peer has received all before it
//	arrive NUMBER         a frame of that number comes, and is received if it is due
//	say                   a note is to go out
//	ask NUMBER            the peer waits for the confirmation of all before it
//	number NUMBER         a header has it
//	owes                  is the peer to hear at once what has come?
//	resent                how many frames went again
func TestScripts(t *testing.T) {
	scripttest.Run(t, "testdata/path_*.txt", func() func(string) ([]string, error) {
		p := &path{sendWindow: sendWindow{limit: 4 << 10}, recvWindow: recvWindow{maxAhead: maxFramesInFlight(4 << 10)}}
		return func(line string) ([]string, error) { return play(p, line) }
	})
}

func play(p *path, line string) ([]string, error) {
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	words := strings.Fields(line)
	number := func(i int) (n int) { fmt.Sscan(words[i], &n); return n }
	freed := func() {
		var all []uint64
		for {
			n := p.firstUnacked
			if _, ok := p.popAcked(); !ok {
				break
			}
			all = append(all, n)
		}
		if all != nil {
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
			say("frame %d", p.push(frame{bytes: make([]byte, headerSize+n)}))
		}
	case "up":
		if err := p.linkUp(number(1), uint64(number(2))); err != nil {
			say("%v", err)
		}
		freed()
	case "down":
		p.linkDown(number(1))
		say("again %v", p.retransmitQueue)
	case "confirm":
		if err := p.recordAck(uint64(number(1))); err != nil {
			say("%v", err)
		}
		freed()
	case "arrive":
		v := p.classify(uint64(number(1)))
		say("%s", [...]string{"hand up", "early", "old"}[v])
		if v == arrivalInOrder {
			p.recordReceived(headerSize)
		}
	case "ask":
		p.recordAckRequest(uint64(number(1)))
	case "number":
		if err := p.checkNumber(uint64(number(1))); err != nil {
			say("%v", err)
		}
	case "owes":
		say("%t", p.mustAck(p.limit))
	case "resent":
		say("%d frames", p.retransmitted)
		return out, nil
	case "say":
		if !p.queueAck(false) {
			say("not now")
		}
	case "write":
		// falls through to what is assigned
		link, bytes := number(1), 0
		c := &p.queues[link]
		for {
			total := 0
			for _, b := range p.appendPieces(link, nil) {
				total += len(b)
			}
			if bytes = total; words[2] != "all" {
				bytes = min(total, number(2))
			}
			p.recordWritten(link, bytes)
			if c.isBlocked = bytes < total; c.isBlocked || words[2] != "all" || len(c.frames) == 0 {
				break
			}
		}
		freed()
	default:
		return nil, fmt.Errorf("no such command: %s", line)
	}
	for i := p.assignFrames(); i >= 0 && words[0] != "arrive"; {
		c := &p.queues[i]
		say("link %d writes %v%s", i, c.frames, map[bool]string{true: " and a note"}[len(c.pendingAck) > 0])
		break
	}
	return out, nil
}

// TestEveryFrameArrivesOnceInOrder: whatever links do, over a model of sockets that keep
// what was written until they are lost.
func TestEveryFrameArrivesOnceInOrder(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		from, to := &path{sendWindow: sendWindow{limit: 3000}}, &path{}
		const links, frames = 3, 200
		var wires [links][]uint64 // what is in the sockets
		var aside []uint64        // frames that came before their turn
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
					from.push(frame{bytes: make([]byte, headerSize+rnd.IntN(70))})
				}
			case 3, 4, 5:
				if i := from.assignFrames(); i >= 0 {
					size := 0
					for _, b := range from.appendPieces(i, nil) {
						size += len(b)
					}
					before := slices.Clone(from.queues[i].frames)
					if n := rnd.IntN(size + 1); n > 0 {
						from.recordWritten(i, n)
					}
					wires[i] = append(wires[i], before[:len(before)-len(from.queues[i].frames)]...)
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
				for {
					if _, ok := from.popAcked(); !ok {
						break
					}
				}
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

// FuzzHeader: what a peer writes is refused, or is what its own encoding says.
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
