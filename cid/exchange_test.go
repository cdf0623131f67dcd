package cid

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/framework/scripttest"
	"pgregory.net/rapid"
)

var actionNames = [...]string{"SendCompact", "SendExtended", "SendRequest", "Hold", "Reply", "Drain", "Conflict", "Drop", "SendClosed", "SendClosedAck", "FreeIndex", "MarkQuiet"}

// String returns the set as in scripts, such as "Reply|Drain", and "nothing" for the empty set.
func (a Action) String() string {
	var names []string
	for i, name := range actionNames {
		if a&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "nothing"
	}
	return strings.Join(names, "|")
}

// wire is a few processes that share one communicator, with an Exchange for each peer, and their
// messages in flight. Data keeps its order. Control messages overtake data and each other.
type wire struct {
	style  Style
	nodes  map[string]*node
	flight map[string][]packet // "a->b"
	log    []string
}

type node struct {
	local Local
	peers map[string]*peerState
}

type peerState struct {
	x Exchange
	// Messages so far, numbered from 1.
	sent, got int
	// Numbers of the held messages.
	held    []int
	replies int
	trouble []string
}

type packet struct {
	kind string // "extended", "compact", "request", "reply"
	// The sender's own id, or in a compact message the receiver's.
	local Local
	// Number of the message, 0 for control.
	msg int
}

func (p packet) control() bool { return p.msg == 0 }

func (p packet) String() string {
	if p.control() {
		return fmt.Sprintf("%s{%v}", p.kind, p.local)
	}
	return fmt.Sprintf("%s{%v} #%d", p.kind, p.local, p.msg)
}

func newWire(style Style, names ...string) *wire {
	w := &wire{style: style, nodes: map[string]*node{}, flight: map[string][]packet{}}
	for i, a := range names {
		n := &node{local: MakeLocal(uint32(10*(i+1)), 1), peers: map[string]*peerState{}}
		for _, b := range names {
			if b != a {
				n.peers[b] = &peerState{x: NewExchange(style)}
			}
		}
		w.nodes[a] = n
	}
	return w
}

func (w *wire) logf(format string, args ...any) { w.log = append(w.log, fmt.Sprintf(format, args...)) }

func (w *wire) post(a, b string, p packet) {
	w.flight[a+"->"+b] = append(w.flight[a+"->"+b], p)
	w.logf("%s->%s %v", a, b, p)
}

// do performs the actions of a's machine for b, as a PML would.
func (w *wire) do(a, b string, act Action, msg int) {
	n, p := w.nodes[a], w.nodes[a].peers[b]
	w.logf("%s: %v", a, act)
	if act&Reply != 0 {
		p.replies++
		w.post(a, b, packet{"reply", n.local, 0})
	}
	if act&SendRequest != 0 {
		w.post(a, b, packet{"request", n.local, 0})
	}
	if act&SendExtended != 0 {
		w.post(a, b, packet{"extended", n.local, msg})
	}
	if act&SendCompact != 0 {
		w.post(a, b, packet{"compact", p.x.Remote(), msg})
	}
	if act&Drop != 0 {
		w.logf("%s: drops #%d", a, msg)
	}
	if act&Hold != 0 {
		p.held = append(p.held, msg)
	}
	if act&Conflict != 0 {
		p.trouble = append(p.trouble, "conflict")
	}
}

func (w *wire) send(a, b string) {
	p := w.nodes[a].peers[b]
	p.sent++
	w.do(a, b, p.x.Send(), p.sent)
}

// deliver delivers the i-th packet in flight from a to b.
func (w *wire) deliver(a, b string, i int) {
	q := w.flight[a+"->"+b]
	w.flight[a+"->"+b] = slices.Delete(slices.Clone(q), i, i+1)
	w.arrive(a, b, q[i])
}

func (w *wire) arrive(a, b string, k packet) {
	n, p := w.nodes[b], w.nodes[b].peers[a]
	if !k.control() {
		if k.msg != p.got+1 {
			p.trouble = append(p.trouble, fmt.Sprintf("#%d after #%d", k.msg, p.got))
		}
		p.got = k.msg
	}
	switch k.kind {
	case "extended", "request":
		w.do(b, a, p.x.RecvExtended(k.local), 0)
	case "reply":
		w.do(b, a, p.x.RecvReply(k.local), 0)
	case "closed":
		w.do(b, a, p.x.RecvClosed(), 0)
	case "compact":
		w.logf("%s: matches #%d", b, k.msg)
		if k.local != n.local {
			p.trouble = append(p.trouble, fmt.Sprintf("compact message names %v, not %v", k.local, n.local))
		}
	}
}

// drain sends up to n of the held messages, as a PML does after Drain.
func (w *wire) drain(a, b string, n int) {
	p := w.nodes[a].peers[b]
	for ; n > 0 && len(p.held) > 0; n-- {
		if p.x.Closed() {
			w.logf("%s: drops #%d", a, p.held[0])
			p.held = p.held[1:]
			continue
		}
		w.post(a, b, packet{"compact", p.x.Remote(), p.held[0]})
		p.held = p.held[1:]
	}
	if len(p.held) == 0 {
		p.x.Drained()
		w.logf("%s: drained", a)
	}
}

// command runs one line of a golden script.
func (w *wire) command(line string) error {
	f := strings.Fields(line)
	arg := func(i, otherwise int) int {
		if i < len(f) {
			if n, err := strconv.Atoi(f[i]); err == nil {
				return n
			}
		}
		return otherwise
	}
	switch {
	case len(f) >= 3 && f[0] == "machines":
		style := Inline
		if f[1] == "held" {
			style = Held
		}
		*w = *newWire(style, f[2:]...)
		return nil
	case len(f) < 3 || w.nodes[f[1]] == nil || w.nodes[f[2]] == nil || f[1] == f[2]:
		return fmt.Errorf("want COMMAND FROM TO: %q", line)
	}
	a, b := f[1], f[2]
	switch f[0] {
	case "send":
		w.send(a, b)
	case "deliver", "duplicate":
		i := arg(3, 1) - 1
		if i < 0 || i >= len(w.flight[a+"->"+b]) {
			return fmt.Errorf("%q: %d packets in flight", line, len(w.flight[a+"->"+b]))
		}
		if f[0] == "deliver" {
			w.deliver(a, b, i)
		} else {
			w.flight[a+"->"+b] = slices.Insert(w.flight[a+"->"+b], i+1, w.flight[a+"->"+b][i])
		}
	case "close": // b receives the close of a.
		w.post(a, b, packet{"closed", w.nodes[a].local, 0})
	case "drain":
		w.drain(a, b, arg(3, 1<<20))
	case "preset":
		w.do(a, b, w.nodes[a].peers[b].x.Preset(w.nodes[b].local), 0)
	case "forge": // An extra packet from a to b with this kind and index.
		w.arrive(a, b, packet{kind: f[3], local: MakeLocal(uint32(arg(4, 0)), uint32(arg(5, 1)))})
	case "known":
		p := w.nodes[a].peers[b]
		w.logf("%s: calls %s %v; held %v", a, b, p.x.Remote(), p.held)
	default:
		return fmt.Errorf("unknown command %q", line)
	}
	return nil
}

// TestExchange_Scripts replays the interactions of testdata/exchange.
func TestExchange_Scripts(t *testing.T) {
	scripttest.Run(t, "testdata/exchange/*.txt", func() func(string) ([]string, error) {
		var w wire
		return func(line string) ([]string, error) {
			w.log = nil
			err := w.command(line)
			return w.log, err
		}
	})
}

func TestExchange_AnyInterleaving_LosesNoMessage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		style := Style(rapid.IntRange(0, 1).Draw(t, "style"))
		names := []string{"a", "b", "c"}[:rapid.IntRange(2, 3).Draw(t, "machines")]
		w := newWire(style, names...)
		pairs := [][2]string{}
		for _, a := range names {
			for _, b := range names {
				if a != b {
					pairs = append(pairs, [2]string{a, b})
				}
			}
		}
		// step delivers or drains once for the pair, and returns false if there is nothing to do.
		step := func(a, b string, pick int) bool {
			var can []int // All control packets, and the first data packet.
			data := false
			for i, p := range w.flight[a+"->"+b] {
				if p.control() || !data {
					can = append(can, i)
				}
				data = data || !p.control()
			}
			p := w.nodes[a].peers[b]
			drains := p.x.Known() && len(p.held) > 0
			switch {
			case drains && pick%2 == 0:
				w.drain(a, b, 1)
			case len(can) > 0:
				w.deliver(a, b, can[pick%len(can)])
			case drains:
				w.drain(a, b, 1)
			default:
				return false
			}
			return true
		}
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			pair := rapid.SampledFrom(pairs).Draw(t, "pair")
			if pick := rapid.IntRange(0, 9).Draw(t, "pick"); pick < 4 {
				w.send(pair[0], pair[1])
			} else {
				step(pair[0], pair[1], pick)
			}
		}
		for moved := true; moved; {
			moved = false
			for _, pair := range pairs {
				for step(pair[0], pair[1], 1) {
					moved = true
				}
			}
		}
		for _, pair := range pairs {
			a, b := pair[0], pair[1]
			p, q := w.nodes[a].peers[b], w.nodes[b].peers[a]
			if p.sent != q.got || len(p.held) > 0 || p.trouble != nil {
				t.Errorf("%s->%s: %d sent, %d received, held %v, trouble %v", a, b, p.sent, q.got, p.held, p.trouble)
			}
			if p.replies > 1 {
				t.Errorf("%s replied %d times to %s", a, p.replies, b)
			}
			if p.sent+q.sent > 0 && p.x.Remote() != w.nodes[b].local {
				t.Errorf("%s calls %s %v, not %v", a, b, p.x.Remote(), w.nodes[b].local)
			}
			if p.sent > 0 && p.x.Send() != SendCompact {
				t.Errorf("%s->%s: not compact when all is quiet", a, b)
			}
		}
	})
}

// For every sequence of events there is at most one reply, the first valid id stays, no send is
// both held and sent, and Drain is returned only if sends are held.
func TestExchange_AnyEvents_KeepsInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := NewExchange(Style(rapid.IntRange(0, 1).Draw(t, "style")))
		var first Local
		held, replies, requests := 0, 0, 0
		for range rapid.IntRange(1, 40).Draw(t, "events") {
			peer := rapid.SampledFrom([]Local{NoLocal, MakeLocal(3, 0), MakeLocal(3, 1), MakeLocal(3, 2), MakeLocal(0, MaxGen)}).Draw(t, "peer")
			var a Action
			event := rapid.SampledFrom([]string{"send", "extended", "reply", "preset", "drained"}).Draw(t, "event")
			switch event {
			case "send":
				a = x.Send()
				if n := a & (SendCompact | SendExtended | Hold); n != SendCompact && n != SendExtended && n != Hold {
					t.Fatalf("send gave %v", a)
				}
				if a&Hold != 0 {
					held++
				}
				if a&SendCompact != 0 && held > 0 {
					t.Fatal("a send overtakes held ones")
				}
			case "extended":
				a = x.RecvExtended(peer)
			case "reply":
				a = x.RecvReply(peer)
			case "preset":
				a = x.Preset(peer)
			case "drained":
				if held > 0 && !x.Known() {
					x.Drained()
					continue
				}
				x.Drained()
				held = 0
			}
			bad := !peer.Valid() || first.Valid() && peer != first
			if event != "send" && event != "drained" {
				if a&Conflict != 0 != bad {
					t.Fatalf("%s %v after %v gave %v", event, peer, first, a)
				}
				if !bad {
					first = peer
				}
			}
			if a&Drain != 0 && held == 0 {
				t.Fatal("drain with nothing held")
			}
			if a&Reply != 0 {
				replies++
			}
			if a&SendRequest != 0 {
				requests++
			}
			if x.Remote() != first {
				t.Fatalf("remote is %v, first valid id was %v", x.Remote(), first)
			}
		}
		if replies > 1 || requests > 1 {
			t.Fatalf("%d replies, %d requests", replies, requests)
		}
	})
}

func TestExchange_IsSmallAndAllocatesNothing(t *testing.T) {
	if size := reflect.TypeOf(Exchange{}).Size(); size > 8 {
		t.Errorf("%d bytes; one for each peer of each communicator", size)
	}
	var x Exchange
	if n := testing.AllocsPerRun(100, func() {
		x = NewExchange(Held)
		x.Send()
		x.RecvExtended(MakeLocal(1, 1))
		x.RecvReply(MakeLocal(1, 1))
		x.Drained()
		x.Send()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
