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

// ending is a few processes that close one communicator, and their messages in flight. With
// style Inline, messages from one process to another keep their order. With style Held, any
// message may overtake any other.
type ending struct {
	style  Style
	names  []string
	nodes  map[string]*endNode
	flight map[string][]endPacket // "a->b"
	log    []string
}

type endNode struct {
	rest CommClose
	// Created with the first exchange.
	peers   map[string]*endPeer
	pending int
}

type endPeer struct {
	closing PeerClose
	tally   Tally
	met     bool
	// It knows the id there.
	knows bool
}

type endPacket struct {
	kind  string // "data", "closed", "answer", "request", "reply"
	plane int
	// Of a control message.
	sent Counts
}

func (k endPacket) String() string {
	switch k.kind {
	case "data":
		return fmt.Sprintf("data on plane %d", k.plane)
	case "closed", "answer":
		return fmt.Sprintf("%s%v", k.kind, k.sent)
	}
	return k.kind
}

// newEnding returns an open communicator. With preset, its members know all indices from the start.
func newEnding(style Style, preset bool, names ...string) *ending {
	w := &ending{style: style, names: names, nodes: map[string]*endNode{}, flight: map[string][]endPacket{}}
	for _, a := range names {
		n := &endNode{peers: map[string]*endPeer{}}
		n.rest = NewCommClose(style, 0)
		if preset {
			n.rest = NewCommClose(style, len(names)-1)
		}
		w.nodes[a] = n
	}
	return w
}

func (w *ending) logf(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf(format, args...))
}

func (n *endNode) peer(b string) *endPeer {
	if n.peers[b] == nil {
		n.peers[b] = &endPeer{}
	}
	return n.peers[b]
}

func (w *ending) post(a, b string, k endPacket) {
	w.flight[a+"->"+b] = append(w.flight[a+"->"+b], k)
	w.logf("%s->%s %v", a, b, k)
}

// all returns the parameter all of a PML with this style.
func (w *ending) all(p *endPeer) bool { return w.style == Inline || p.tally.IsComplete() }

// do performs the actions of a's machine after an event about b.
func (w *ending) do(a, b string, act Action) {
	p := w.nodes[a].peers[b]
	if act&SendClosed != 0 {
		w.post(a, b, endPacket{kind: "closed", sent: p.tally.Sent})
	}
	if act&SendClosedAck != 0 {
		w.post(a, b, endPacket{kind: "answer", sent: p.tally.Sent})
	}
	if act&(FreeIndex|MarkQuiet) != 0 {
		w.logf("%s: %v", a, act&(FreeIndex|MarkQuiet))
	}
}

func (w *ending) send(a, b string, plane int) {
	p := w.nodes[a].peer(b)
	if w.style == Held && p.closing.IsFinal() {
		w.logf("%s: sends nothing there any more", a) // See Exchange.RecvClosed.
		return
	}
	p.met = true
	p.tally.Sent[plane]++
	w.post(a, b, endPacket{kind: "data", plane: plane})
}

func (w *ending) ask(a, b string) {
	w.nodes[a].peer(b).met = true
	w.post(a, b, endPacket{kind: "request"})
}

func (w *ending) close(a string) {
	if n := w.nodes[a]; n.rest.Close() && n.pending == 0 {
		w.part(a)
	}
}

func (w *ending) part(a string) {
	n := w.nodes[a]
	for _, b := range w.names {
		switch p := n.peers[b]; {
		case p == nil:
		case a == b:
			p.tally.SetFinal(p.tally.Sent)
			n.rest.NotifySelf(&p.closing, w.all(p))
		default:
			w.do(a, b, n.rest.NotifyPeer(&p.closing, p.met, w.all(p)))
		}
	}
	w.do(a, a, n.rest.FinishNotify())
}

func (w *ending) deliver(a, b string, i int) {
	q := w.flight[a+"->"+b]
	k := q[i]
	w.flight[a+"->"+b] = slices.Delete(slices.Clone(q), i, i+1)
	n := w.nodes[b]
	p := n.peer(a)
	switch k.kind {
	case "data":
		p.tally.Consumed[k.plane]++
		if n.rest.Stage() == StageOpen {
			p.met = true
			w.logf("%s: receives it", b)
			return
		}
		w.logf("%s: drops it", b)
		if w.style == Held { // Inline, the PML has released the communicator.
			w.do(b, a, n.rest.RecvLate(&p.closing, w.all(p)))
		}
	case "closed", "answer":
		p.tally.SetFinal(k.sent)
		w.do(b, a, n.rest.RecvClosed(&p.closing, k.kind == "answer", w.all(p)))
	case "request":
		p.knows = true
		if n.rest.Stage() >= StageNotified {
			w.do(b, a, n.rest.RecvRequest(&p.closing, &p.tally))
			return
		}
		p.met = true
		w.post(b, a, endPacket{kind: "reply"})
	case "reply":
		p.knows = true
		w.do(b, a, n.rest.RecvReply(&p.closing))
	}
}

// command runs one line of a golden script.
func (w *ending) command(line string) error {
	f := strings.Fields(line)
	arg := func(i, otherwise int) int {
		if i < len(f) {
			if n, err := strconv.Atoi(f[i]); err == nil {
				return n
			}
		}
		return otherwise
	}
	if f[0] == "inline" || f[0] == "held" || f[0] == "preset" {
		style := Held
		if f[0] == "inline" {
			style = Inline
		}
		*w = *newEnding(style, f[0] == "preset", f[1:]...)
		return nil
	}
	if len(f) < 2 || w.nodes[f[1]] == nil || len(f) > 2 && f[0] != "begin" && f[0] != "end" && w.nodes[f[2]] == nil {
		return fmt.Errorf("want COMMAND FROM [TO]: %q", line)
	}
	n := w.nodes[f[1]]
	switch f[0] {
	case "close":
		w.close(f[1])
	case "begin":
		n.pending++
	case "end":
		if n.pending--; n.pending == 0 && n.rest.Stage() == StageEnding {
			w.part(f[1])
		}
	case "stage":
		w.logf("%s: %s", f[1], [...]string{"open", "ending", "notified", "quiet", "finished"}[n.rest.Stage()])
	case "forget":
		n.rest.EndQuarantine()
	case "send":
		w.send(f[1], f[2], arg(3, 0))
	case "ask": // Requests the id before the first message.
		w.ask(f[1], f[2])
	case "reply": // Unsolicited, after f[1] has lost the notification.
		w.post(f[1], f[2], endPacket{kind: "reply"})
	case "gone": // f[1] learns of the failure of f[2].
		w.do(f[1], f[2], n.rest.MemberEnded(&n.peer(f[2]).closing))
	case "deliver":
		i := arg(3, 1) - 1
		if i < 0 || i >= len(w.flight[f[1]+"->"+f[2]]) {
			return fmt.Errorf("%q: %d packets in flight", line, len(w.flight[f[1]+"->"+f[2]]))
		}
		w.deliver(f[1], f[2], i)
	default:
		return fmt.Errorf("unknown command %q", line)
	}
	return nil
}

// TestClosing_Scripts replays the interactions of testdata/closing.
func TestClosing_Scripts(t *testing.T) {
	scripttest.Run(t, "testdata/closing/*.txt", func() func(string) ([]string, error) {
		var w ending
		return func(line string) ([]string, error) {
			w.log = nil
			err := w.command(line)
			return w.log, err
		}
	})
}

// TestClosing_AnyInterleaving_NoMessageMeetsReusedIndex checks that an index is free only when no message to it
// is in flight, in any order of delivery, and that every index becomes free or quiet once all
// members have closed. With style Inline it covers members that have exchanged messages.
func TestClosing_AnyInterleaving_NoMessageMeetsReusedIndex(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		style := Style(rapid.IntRange(0, 1).Draw(t, "style"))
		preset := style == Held && rapid.Bool().Draw(t, "preset")
		names := []string{"a", "b", "c"}[:rapid.IntRange(2, 3).Draw(t, "members")]
		w := newEnding(style, preset, names...)
		var pairs [][2]string
		for _, a := range names {
			for _, b := range names {
				if style == Held || a != b {
					pairs = append(pairs, [2]string{a, b})
				}
			}
		}
		check := func() {
			for _, pair := range pairs {
				n := w.nodes[pair[1]]
				p := n.peers[pair[0]]
				if n.rest.Stage() != StageFinished || style == Inline && (p == nil || !p.met) {
					continue
				}
				for _, k := range w.flight[pair[0]+"->"+pair[1]] {
					if k.kind == "data" {
						t.Fatalf("%s's index is free, and a message of %s is under way", pair[1], pair[0])
					}
				}
			}
		}
		step := func(pair [2]string, pick int) bool {
			q := w.flight[pair[0]+"->"+pair[1]]
			if len(q) == 0 {
				return false
			}
			if style == Inline {
				pick = 0
			}
			w.deliver(pair[0], pair[1], pick%len(q))
			check()
			return true
		}
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			pair := rapid.SampledFrom(pairs).Draw(t, "pair")
			n := w.nodes[pair[0]]
			switch pick := rapid.IntRange(0, 19).Draw(t, "pick"); {
			case pick == 0:
				w.close(pair[0])
				check()
			case pick < 8 && n.rest.Stage() == StageOpen:
				p := n.peers[pair[1]]
				switch {
				case style == Inline || preset || pair[0] == pair[1] || p != nil && p.knows:
				case p == nil:
					w.ask(pair[0], pair[1])
					continue
				default: // It has sent a request.
					continue
				}
				w.send(pair[0], pair[1], pick%3)
			default:
				step(pair, pick)
			}
		}
		for _, a := range names {
			w.close(a)
		}
		for moved := true; moved; {
			moved = false
			for _, pair := range pairs {
				for step(pair, 0) {
					moved = true
				}
			}
		}
		for _, a := range names {
			if s := w.nodes[a].rest.Stage(); s != StageFinished && !(preset && s == StageQuiet) {
				t.Fatalf("%s is at stage %d when all is said: %+v", a, s, w.nodes[a].rest)
			}
		}
	})
}

func TestClosing_IsSmallAndAllocatesNothing(t *testing.T) {
	if size := reflect.TypeFor[PeerClose]().Size(); size > 4 {
		t.Errorf("%d bytes; one for each peer of each communicator", size)
	}
	var m PeerClose
	var tally Tally
	if n := testing.AllocsPerRun(100, func() {
		m = PeerClose{}
		r := NewCommClose(Held, 1)
		tally.Sent[1]++
		r.Close()
		r.NotifyPeer(&m, tally.HasMessages(), tally.IsComplete())
		r.FinishNotify()
		tally.SetFinal(Counts{0, 1})
		r.RecvClosed(&m, false, tally.IsComplete())
		tally.Consumed[1]++
		r.RecvLate(&m, tally.IsComplete())
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
