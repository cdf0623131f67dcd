package selector

import (
	"math"
	"math/rand/v2"
	"testing"
)

// coldRingMachine simulates a ring that is cold for the first pipeline messages behind others.
type coldRingMachine struct {
	// cost is in ns per byte with a warm ring.
	cost [Protocols]float64
	// coldFactor is the ratio of the first pipeline message's cost.
	coldFactor   float64
	lastProtocol Protocol
	// consecutive counts messages by lastProtocol.
	consecutive int
}

func (m *coldRingMachine) messageCost(w Protocol) float64 {
	if w != m.lastProtocol {
		m.lastProtocol, m.consecutive = w, 0
	}
	m.consecutive++
	x := m.cost[w]
	if w == Pipeline && m.consecutive <= 4 {
		x *= 1 + (m.coldFactor-1)*float64(5-m.consecutive)/4
	}
	return x
}

// play sends n messages, and returns the number of those by one protocol.
func (m *coldRingMachine) play(c *Selector, n int, by Protocol) (good int) {
	last := Protocols
	for range n {
		w, _ := c.Select(fourProtocols)
		c.Record(w, messageBytes, int64(m.messageCost(w)*messageBytes), c.burst == 1 || w == last)
		last = w
		if w == by {
			good++
		}
	}
	return good
}

// A single pipeline message among gets finds a cold ring and takes longer than a get, but
// later ones would not.
func TestSelector_PipelineColdAfterChange_IsProbedAtLength(t *testing.T) {
	for _, burst := range []int{1, 3} {
		m := &coldRingMachine{coldFactor: 1.6, cost: [Protocols]float64{Pipeline: 0.15, Get: 0.06, Put: 0.2, Split: 0.08}}
		c := New(1, burst, Pipeline)
		m.play(&c, 2000, Get)
		m.cost = [Protocols]float64{Pipeline: 0.020, Get: 0.026, Put: 0.08, Split: 0.026}
		m.play(&c, 200, Pipeline)
		if good := m.play(&c, 200, Pipeline); good < 150 {
			t.Errorf("burst %d: 200 messages after the change %d of 200 go by the best protocol: %v", burst, good, c.Estimates())
		}
	}
}

// In a window one sample is 64 messages, and the first sample after the change already
// replaces the protocol.
func TestSelector_BestBecomesSlow_IsReplaced(t *testing.T) {
	for _, burst := range []int{1, 3} {
		m := &coldRingMachine{coldFactor: 1, cost: [Protocols]float64{Pipeline: 0.06, Get: 0.11, Put: 0.5, Split: 0.2}}
		c := New(1, burst, Pipeline)
		m.play(&c, 1000, Pipeline)
		m.cost[Pipeline] = 0.6
		m.play(&c, 300, Get)
		if good := m.play(&c, 200, Get); good < 150 {
			t.Errorf("burst %d: %d of 200 messages used the best protocol: %v", burst, good, c.Estimates())
		}
	}
}

// The pipeline is fast only in probes, because its cache lines have rested. In use it is slow.
func TestSelector_ProtocolFastOnlyInProbes_IsRarelyUsed(t *testing.T) {
	for _, burst := range []int{1, 3} {
		for seed := range uint64(50) {
			c := New(seed, burst, PipelineFull)
			cost := [Protocols]float64{Pipeline: 0.11, Get: 0.1, Put: 0.2, Split: 0.12, PipelineFull: 0.033, PipelineNT: 0.06}
			last, row, frames := Protocols, 0, 0
			// Messages that are accepted and not measured yet.
			var late []Protocol
			play := func(n int) {
				for range n {
					w, _ := c.Select(All)
					if late = append(late, w); len(late) <= 18 {
						continue
					}
					w, late = late[0], late[1:]
					x := cost[w]
					if row++; w != last {
						row = 1
					}
					if w == Pipeline {
						frames++
						if row <= 12 {
							x = min(x, 0.025)
						}
					}
					c.Record(w, messageBytes, int64(x*messageBytes), burst == 1 || w == last)
					last = w
				}
			}
			play(10_000)
			if frames > 1000 {
				t.Errorf("burst %d, seed %d: %d of 10,000 messages used a protocol that is fast in probes only", burst, seed, frames)
			}
			cost[Pipeline], frames = 0.012, 0
			if play(30_000); frames < 10_000 {
				t.Errorf("burst %d, seed %d: it is fast in use now, and %d of 30,000 messages go by it", burst, seed, frames)
			}
		}
	}
}

// windowMachine simulates windows that start with the answer to the one before. As in package
// ob1, messages in flight use one protocol, up to 32 of them with a pipeline.
type windowMachine struct {
	ns [Protocols]int64
	// restedMessages is the number of consecutive pipeline messages that take restedNS.
	restedMessages int
	restedNS       int64
	// interruptEvery is the average interval of interrupted messages, or 0.
	interruptEvery int
	// length is the number of messages of a window.
	length            int
	rng               *rand.Rand
	inFlight          []Protocol
	lastProtocol      Protocol
	consecutive, sent int
	// inStepLeft counts PipelineFull messages in lockstep, after another protocol has drained the path.
	inStepLeft int
}

// The size of a message in bytes, and the following times in ns: start of a window, the same
// with PipelineNT, change of the protocol, interruption, PipelineFull message in lockstep.
const windowBytes, windowStartNS, windowStartNTNS, switchNS, interruptNS, inStepNS = 32 << 10, 36_000, 80_000, 2000, 100_000, 2000

// play sends n messages, and returns the relative loss against the best protocol alone.
func (m *windowMachine) play(c *Selector, n int, best Protocol) (loss float64) {
	var elapsed, least int64
	end := func() {
		w := m.inFlight[0]
		m.inFlight = m.inFlight[1:]
		x := m.ns[w]
		if m.consecutive++; w != m.lastProtocol {
			m.consecutive = 1
		}
		if w == Pipeline && m.consecutive <= m.restedMessages {
			x = m.restedNS
		}
		least += m.ns[best]
		if w != m.lastProtocol {
			x += switchNS
			if m.inStepLeft = 0; m.rng.IntN(6) == 0 {
				m.inStepLeft = 12
			}
		}
		if m.inStepLeft > 0 && w == PipelineFull {
			m.inStepLeft--
			x = inStepNS
		}
		if m.sent++; m.sent%m.length == 0 {
			x += windowStartNS
			if w == PipelineNT {
				x += windowStartNTNS - windowStartNS
			}
			least += windowStartNS
		}
		if m.interruptEvery > 0 && m.rng.IntN(m.interruptEvery) == 0 {
			x += interruptNS
			least += interruptNS
		}
		elapsed += x
		c.Record(w, windowBytes, int64(float64(x)*math.Exp(0.2*m.rng.NormFloat64())), w == m.lastProtocol)
		m.lastProtocol = w
	}
	for range n {
		w, _ := c.Select(All)
		most := 2
		if AnyPipeline.Has(w) {
			most = 32
		}
		for len(m.inFlight) >= most || len(m.inFlight) > 0 && m.inFlight[0] != w {
			end()
		}
		m.inFlight = append(m.inFlight, w)
	}
	return float64(elapsed)/float64(least) - 1
}

// Samples in use contain the start of windows, and probes do not. So each probe looks good,
// most of all by a protocol that is fast for its first messages. Confirmation costs
// messages, and must become rarer.
func TestSelector_ProbesMissWindowStart_LossDeclines(t *testing.T) {
	wide := [Protocols]int64{Pipeline: 3500, Get: 3700, Put: 3100, Split: 2400, PipelineFull: 650, PipelineNT: 1300}
	both := wide
	both[Split] = 300
	for _, at := range []struct {
		name   string
		ns     [Protocols]int64
		best   Protocol
		length int
		// often is the average interval of interrupted messages.
		often int
		known bool
		most  [3]float64
	}{
		{"frames are not doubted", wide, PipelineFull, 64, 0, false, [3]float64{0.20, 0.05, 0.06}},
		{"frames are doubted", wide, PipelineFull, 64, 0, true, [3]float64{0.15, 0.05, 0.06}},
		{"interrupts", wide, PipelineFull, 64, 200, true, [3]float64{0.16, 0.06, 0.06}},
		{"the best protocol is not the guess", both, Split, 64, 0, true, [3]float64{0.27, 0.04, 0.04}},
		{"the best protocol is not the guess, interrupts", both, Split, 64, 300, true, [3]float64{0.25, 0.05, 0.05}},
		{"short windows", wide, PipelineFull, 16, 0, true, [3]float64{0.27, 0.05, 0.05}},
	} {
		t.Run(at.name, func(t *testing.T) {
			var loss [3][]float64
			for seed := range uint64(200) {
				c := New(seed, 3, PipelineFull)
				if at.known {
					c.Penalize(Of(Pipeline))
				}
				m := &windowMachine{rng: rand.New(rand.NewPCG(seed, 9)), lastProtocol: Protocols, restedMessages: 32, restedNS: 550, interruptEvery: at.often, length: at.length, ns: at.ns}
				for i, n := range []int{1000, 9000, 20_000} {
					loss[i] = append(loss[i], m.play(&c, n, at.best))
				}
			}
			for i, what := range []string{"messages 1 to 1000", "messages 1001 to 10000", "messages 10001 to 30000"} {
				if mean := logSummary(t, what, loss[i]); mean > at.most[i] {
					t.Errorf("loss of %.1f %%", 100*mean)
				}
			}
		})
	}
}

// Of each 60 messages, 30 have a layout and can only use the pipeline. They complete when
// another protocol is the best already, and still show that their protocol has become slow.
func TestSelector_WindowsWithAlternatingSets_FindsBestOfEach(t *testing.T) {
	for seed := range uint64(50) {
		c := New(seed, 3, PipelineFull)
		cost := [Protocols]float64{Pipeline: 0.1, Get: 0.02, Put: 0.1, Split: 0.1, PipelineFull: 0.04, PipelineNT: 0.06}
		var late []Protocol
		last, by := Protocols, [Protocols]int{}
		for i := range 30_000 {
			ways := All
			if i/30%2 == 0 {
				ways = AnyPipeline
			}
			if i == 10_000 {
				cost[PipelineFull] = 0.3
			}
			w, _ := c.Select(ways)
			if i >= 12_000 {
				by[w]++
			}
			if late = append(late, w); len(late) > 30 {
				w, late = late[0], late[1:]
				c.Record(w, messageBytes, int64(cost[w]*messageBytes), w == last)
				last = w
			}
		}
		if by[Get] < 8500 || by[PipelineNT] < 8500 {
			t.Errorf("seed %d: protocols of 18,000 messages: %v", seed, by)
		}
	}
}

// The former best protocol gets a second trial after a change, and is still slow. That raises
// no penalty, so that the selector returns when the change is reverted.
func TestSelector_ChangeIsReverted_ReturnsToBest(t *testing.T) {
	usual := [Protocols]float64{Pipeline: 0.3, Get: 0.1, Put: 0.25, Split: 0.12, PipelineFull: 0.04, PipelineNT: 0.3}
	for _, burst := range []int{1, 3} {
		c := New(1, burst, Pipeline)
		m := &coldRingMachine{coldFactor: 1, cost: usual}
		all := func(n int) (good int) {
			last := Protocols
			for range n {
				w, _ := c.Select(All)
				c.Record(w, messageBytes, int64(m.messageCost(w)*messageBytes), burst == 1 || w == last)
				if last = w; w == PipelineFull {
					good++
				}
			}
			return good
		}
		all(1000 * burst)
		for w := range Protocols {
			if w != Get {
				m.cost[w] = 1.3
			}
		}
		all(2000 * burst)
		m.cost = usual
		all(6000)
		if good := all(1000); good < 900 {
			t.Errorf("burst %d: %d of 1,000 messages used the restored best protocol", burst, good)
		}
	}
}

// Every second message has a layout and can only use the pipeline.
func TestSelector_AlternatingSets_NoticesChange(t *testing.T) {
	c := New(1, 1, Pipeline)
	m := &coldRingMachine{coldFactor: 1, cost: [Protocols]float64{Pipeline: 0.2, Get: 0.03, Put: 0.2, Split: 0.2, PipelineFull: 0.06, PipelineNT: 0.2}}
	play := func(n int) (by [Protocols]int) {
		for i := range n {
			ways := All
			if i%2 == 0 {
				ways = AnyPipeline
			}
			w, _ := c.Select(ways)
			c.Record(w, messageBytes, int64(m.messageCost(w)*messageBytes), true)
			by[w]++
		}
		return by
	}
	play(2000)
	m.cost[Get] = 0.3
	play(400)
	if by := play(1000); by[PipelineFull] < 900 {
		t.Errorf("protocols of 1,000 messages: %v", by)
	}
}

// While two processes share one processor, all protocols that need both are slow, and get
// seems the best. The transition ends after a few messages, and the selector returns long
// before the probe limits would allow it. Times are recorded some messages later. If the
// costs stay, the return is cheap.
func TestSelector_ShortTransition_ReturnsToFormerBest(t *testing.T) {
	usual := [Protocols]float64{Pipeline: 0.05, Get: 0.1, Put: 0.25, Split: 0.12, PipelineFull: 0.04, PipelineNT: 0.08}
	for _, burst := range []int{1, 3} {
		for seed := range uint64(50) {
			c := New(seed, burst, Pipeline)
			m := &coldRingMachine{coldFactor: 1, cost: usual}
			var late []Protocol
			elapsed := 0.
			play := func(n int) (by [Protocols]int) {
				for range n {
					w, _ := c.Select(All)
					by[w]++
					if late = append(late, w); len(late) > 3 {
						x := m.messageCost(late[0])
						elapsed += x
						c.Record(late[0], messageBytes, int64(x*messageBytes), burst == 1 || late[0] == late[1])
						late = late[1:]
					}
				}
				return by
			}
			after := 100 * burst * burst
			play(1000 * burst)
			for w := range Protocols {
				if w != Get {
					m.cost[w] = 1.3
				}
			}
			moment := 15
			// The first sample after the change.
			if burst > 1 {
				moment = 2 * runMessages
			}
			play(moment)
			m.cost = usual
			play(after)
			if by := play(200); by[PipelineFull] < 150 {
				t.Errorf("burst %d, seed %d: %d messages after the change %v of 200 used each protocol: %v", burst, seed, after, by, c.Estimates())
			}
			// This time the change stays.
			for w := range Protocols {
				if w != Get {
					m.cost[w] = 1.3
				}
			}
			play(after)
			elapsed = 0
			if play(1000); elapsed > 1.05*1000*m.cost[Get] {
				t.Errorf("burst %d, seed %d: 1000 messages after a lasting change take %.2f times as long as by the best protocol", burst, seed, elapsed/1000/m.cost[Get])
			}
		}
	}
}
