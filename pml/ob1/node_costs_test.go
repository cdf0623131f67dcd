package ob1

import (
	"math"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml/ob1/selector"
	"github.com/ferrympi/ferry/progress"
)

// wordTable is a node table in memory of the test.
type wordTable [costKinds * kindWords]atomic.Uint64

func (t *wordTable) Load(i int) uint64     { return t[i].Load() }
func (t *wordTable) Store(i int, w uint64) { t[i].Store(w) }

// countingTable counts stores.
type countingTable struct {
	*wordTable
	stores int
}

func (t *countingTable) Store(i int, w uint64) {
	t.stores++
	t.wordTable.Store(i, w)
}

// tableCopier has no ability but a node table.
type tableCopier struct {
	btl.Copier
	table btl.NodeTable
}

func (c tableCopier) NodeTable(framework.Incarnation, uint32, int) btl.NodeTable { return c.table }

// newReceiver returns the state of a process of the node for a peer. The process selects for both
// directions if its nonce is lower.
func newReceiver(t *testing.T, table *wordTable, nonce uint64) *proc {
	engine := progress.New(progress.Options{})
	t.Cleanup(engine.Close)
	m := &Module{engine: engine}
	m.env.Self = framework.Incarnation{Nonce: nonce}
	p := &proc{m: m}
	p.Incarnation = framework.Incarnation{Nonce: 100}
	copier := tableCopier{}
	if table != nil {
		copier.table = table
	}
	p.inTransport = &transport{m: m, copier: copier}
	return p
}

var (
	testKind = messageKind{pattern: single, class: 3}
	// trueCosts are the costs of the simulated messages, in ns per byte.
	trueCosts = selector.Costs{selector.Pipeline: 0.3, selector.Get: 0.2, selector.Put: 0.5, selector.Split: 0.4, selector.PipelineFull: 0.1, selector.PipelineNT: 0.6}
)

// receiveMessages receives messages of a kind and returns their protocols.
func receiveMessages(p *proc, k messageKind, n int) (protocols []selector.Protocol) {
	const bytes = 1 << 18
	s := p.selectionOf(k, true)
	for range n {
		protocol := s.selectProtocol(p, selector.All)
		if protocol != selector.PipelineFull || !p.incoming.isFirstLap(bytes, p.inTransport.lap()) {
			s.record(p, protocol, bytes, int64(trueCosts[protocol]*bytes), true)
		}
		protocols = append(protocols, protocol)
	}
	return protocols
}

func count(protocols []selector.Protocol, want selector.Protocol) (n int) {
	for _, p := range protocols {
		if p == want {
			n++
		}
	}
	return n
}

func TestNodeCosts_OneMeasures_OthersStartWithItsCosts(t *testing.T) {
	var table wordTable
	first, second := newReceiver(t, &table, 1), newReceiver(t, &table, 2)
	receiveMessages(first, testKind, 1)
	if waiting := receiveMessages(second, testKind, 20); count(waiting, selector.Get) != 20 {
		t.Errorf("protocols of a process that waits for costs: %v", waiting)
	}
	receiveMessages(first, testKind, 200)
	if got := (nodeCosts{&table}).load(testKind); bestOf(got) != selector.PipelineFull || got[selector.Get] < 0.19 || got[selector.Get] > 0.21 {
		t.Errorf("published costs: %v", got)
	}
	for name, p := range map[string]*proc{"a process that has waited": second, "a new process": newReceiver(t, &table, 3)} {
		protocols := receiveMessages(p, testKind, 50)
		if protocols[0] != selector.PipelineFull || count(protocols, selector.Put)+count(protocols, selector.PipelineNT) > 0 || count(protocols, selector.PipelineFull) < 40 {
			t.Errorf("%s starts with %v", name, protocols)
		}
	}
}

// The first lap of pipeline-full is not measured.
func TestNodeCosts_RingIsNew_LaterPairUsesTheBestProtocol(t *testing.T) {
	var table wordTable
	for nonce := range uint64(3) {
		p := newReceiver(t, &table, nonce+1)
		p.inTransport.Ring = 2 << 20
		if protocols := receiveMessages(p, testKind, 1000); count(protocols, selector.PipelineFull) < 900 {
			t.Errorf("pair %d: %d of 1,000 messages by the best protocol", nonce, count(protocols, selector.PipelineFull))
		}
	}
	if got := (nodeCosts{&table}).load(testKind); bestOf(got) != selector.PipelineFull || got[selector.PipelineFull] > 0.11 {
		t.Errorf("published costs: %v", got)
	}
}

// Messages with a layout cannot use get, so that their costs are not those of the kind.
func TestNodeCosts_MessagesWithLayout_LeaveCostsOfTheBest(t *testing.T) {
	var table wordTable
	costs := selector.Costs{selector.Pipeline: 0.15, selector.Get: 0.1, selector.Split: 0.2, selector.PipelineFull: 0.15}
	nodeCosts{&table}.publish(testKind, costs)
	p := newReceiver(t, &table, 2)
	s := p.selectionOf(testKind, true)
	for range 500 {
		protocol := s.selectProtocol(p, selector.AnyPipeline)
		s.record(p, protocol, 1<<18, 39321, true)
	}
	if got := (nodeCosts{&table}).load(testKind); got != costs {
		t.Errorf("published costs: %v, want %v", got, costs)
	}
}

// The best of the possible protocols differs from message to message.
func TestNodeCosts_PossibleProtocolsAlternate_PublishesRarely(t *testing.T) {
	var table wordTable
	receiveMessages(newReceiver(t, &table, 1), testKind, 200)
	counting := &countingTable{wordTable: &table}
	p := newReceiver(t, &table, 2)
	p.inTransport.copier = tableCopier{table: counting}
	s := p.selectionOf(testKind, true)
	for i := range 2000 {
		possible := selector.All
		if i%2 == 0 {
			possible &^= selector.Of(selector.PipelineFull)
		}
		protocol := s.selectProtocol(p, possible)
		s.record(p, protocol, 1<<18, int64(trueCosts[protocol]*(1<<18)), true)
	}
	if limit := costWords * 2000 / firstRefresh; counting.stores > limit {
		t.Errorf("%d words were stored, at most %d expected", counting.stores, limit)
	}
}

// The process that has claimed the kind has died, or receives no further message.
func TestNodeCosts_MeasurerStops_OthersMeasure(t *testing.T) {
	var table wordTable
	receiveMessages(newReceiver(t, &table, 1), testKind, 3)
	p := newReceiver(t, &table, 2)
	if waiting := receiveMessages(p, testKind, maxAwaited); count(waiting, selector.Get) != maxAwaited {
		t.Errorf("protocols of a process that waits for costs: %v", waiting)
	}
	if later := receiveMessages(p, testKind, 100); count(later, selector.PipelineFull) < 50 {
		t.Errorf("protocols behind the wait: %v", later)
	}
	if got := (nodeCosts{&table}).load(testKind); bestOf(got) != selector.PipelineFull {
		t.Errorf("published costs: %v", got)
	}
}

// A process dies after the first of its stores.
func TestNodeCosts_PublisherDies_OthersUseTheRest(t *testing.T) {
	var whole, part wordTable
	nodeCosts{&whole}.publish(testKind, trueCosts)
	part.Store(testKind.firstWord(), whole.Load(testKind.firstWord()))
	want := selector.Costs{selector.Pipeline: trueCosts[selector.Pipeline], selector.Get: trueCosts[selector.Get]}
	if got := (nodeCosts{&part}).load(testKind); got != want {
		t.Fatalf("costs %v, want %v", got, want)
	}
	p := newReceiver(t, &part, 2)
	protocols := receiveMessages(p, testKind, 200)
	if protocols[0] != selector.Get || count(protocols, selector.PipelineFull) < 100 {
		t.Errorf("protocols: %v", protocols)
	}
	if got := (nodeCosts{&part}).load(testKind); bestOf(got) != selector.PipelineFull {
		t.Errorf("costs after the change of the best protocol: %v", got)
	}
}

func TestNodeCosts_Garbage_IsUnknown(t *testing.T) {
	for _, bits := range []uint32{0, 1, 0x7fc00000, 0x7f800000, 0xff800000, 0xffffffff, math.Float32bits(-1), math.Float32bits(minCost / 2), math.Float32bits(maxCost * 2)} {
		var table wordTable
		for i := range table {
			table.Store(i, uint64(bits)|uint64(bits)<<32)
		}
		n := nodeCosts{&table}
		if got := n.load(testKind); got != (selector.Costs{}) {
			t.Errorf("costs of words %#x: %v", bits, got)
		}
		p := newReceiver(t, &table, 2)
		receiveMessages(p, testKind, maxAwaited)
		if later := receiveMessages(p, testKind, 100); count(later, selector.PipelineFull) < 50 {
			t.Errorf("protocols beside words %#x: %v", bits, later)
		}
		n.publish(testKind, trueCosts)
		if got := n.load(testKind); got != trueCosts {
			t.Errorf("costs published over words %#x: %v", bits, got)
		}
	}
}

func TestNodeCosts_EveryKind_HasWordsOfItsOwn(t *testing.T) {
	var table wordTable
	n := nodeCosts{&table}
	seen := map[int]messageKind{}
	for memory := range btl.Memories {
		for pattern := range patterns {
			for class := range uint8(classes) {
				k := messageKind{memory, pattern, class}
				at := k.firstWord()
				if other, ok := seen[at]; ok || at%kindWords != 0 || at+kindWords > len(table) {
					t.Fatalf("%v and %v begin at word %d", other, k, at)
				}
				seen[at] = k
				n.publish(k, selector.Costs{selector.Get: float32(at + 1)})
				n.claim(k, uint64(at+1))
			}
		}
	}
	for at, k := range seen {
		if c := n.load(k); c[selector.Get] != float32(at+1) || !n.claim(k, 1) {
			t.Errorf("%v: %v", k, c)
		}
	}
}

func TestNodeCosts_TwoPublish_EachCostIsOneOfTheirs(t *testing.T) {
	var table wordTable
	n := nodeCosts{&table}
	of := func(x float32) (c selector.Costs) {
		for p := range c {
			c[p] = x + float32(p)
		}
		return c
	}
	var done sync.WaitGroup
	for _, x := range []float32{1, 100} {
		done.Go(func() {
			for range 1000 {
				n.publish(testKind, of(x))
			}
		})
	}
	done.Go(func() {
		for range 1000 {
			for p, cost := range n.load(testKind) {
				if x := cost - float32(p); cost != 0 && x != 1 && x != 100 {
					t.Errorf("cost %v of protocol %d", cost, p)
				}
			}
		}
	})
	done.Wait()
}

// The process with the smaller nonce selects for both directions. The other one only follows.
func TestNodeCosts_PeerSelectsForBoth_PublishesNothing(t *testing.T) {
	var table wordTable
	k := messageKind{pattern: crossing, class: 3}
	follower := newReceiver(t, &table, 101)
	receiveMessages(follower, k, 200)
	receiveMessages(follower, messageKind{pattern: crossing, class: 4}, 200) // It starts with results of its neighbor.
	for i := range table {
		if word := table.Load(i); word != 0 {
			t.Fatalf("word %d is %#x", i, word)
		}
	}
	receiveMessages(newReceiver(t, &table, 99), k, 200)
	if bestOf((nodeCosts{&table}).load(k)) != selector.PipelineFull {
		t.Error("the process that selects has published nothing")
	}
}

func TestNodeCosts_NoTable_Measures(t *testing.T) {
	p := newReceiver(t, nil, 1)
	if protocols := receiveMessages(p, testKind, 100); count(protocols, selector.PipelineFull) < 50 {
		t.Errorf("protocols: %v", protocols)
	}
}

// Costs of a protocol that a new best one has made hopeless are of an earlier state of the machine.
func TestNodeCosts_UnknownCost_StaysHopeless(t *testing.T) {
	var table wordTable
	n := nodeCosts{&table}
	n.publish(testKind, selector.Costs{selector.Get: 0.1, selector.Put: 0.3})
	n.publish(testKind, selector.Costs{selector.Get: 1, selector.Split: 0.8})
	if got := n.load(testKind); bestOf(got) != selector.Split || got[selector.Put] < 2*got[selector.Split] || got[selector.Pipeline] != 0 {
		t.Errorf("costs %v", got)
	}
}
