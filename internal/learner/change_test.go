package learner

import (
	"math"
	"math/rand/v2"
	"testing"
)

// coldRingMachine simulates a ring that is cold for the first pipeline messages behind others.
type coldRingMachine struct {
	// cost is in ns per byte with a warm ring.
	cost [protocols]float64
	// coldFactor is the ratio of the first pipeline message's cost.
	coldFactor   float64
	lastProtocol protocol
	// consecutive counts messages by lastProtocol.
	consecutive int
}

func (m *coldRingMachine) messageCost(w protocol) float64 {
	if w != m.lastProtocol {
		m.lastProtocol, m.consecutive = w, 0
	}
	m.consecutive++
	x := m.cost[w]
	if w == pipeline && m.consecutive <= 4 {
		x *= 1 + (m.coldFactor-1)*float64(5-m.consecutive)/4
	}
	return x
}

// play sends n messages, and returns the number of those by one protocol.
func (m *coldRingMachine) play(c *Selector[protocol], n int, by protocol) (good int) {
	last := protocols
	for range n {
		w, _ := c.Select(fourprotocols)
		c.Record(w, messageBytes, int64(m.messageCost(w)*messageBytes), c.shape.Probe == 1 || w == last)
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
		m := &coldRingMachine{coldFactor: 1.6, cost: [protocols]float64{pipeline: 0.15, get: 0.06, put: 0.2, split: 0.08}}
		c := newSim(burst, pipeline)
		m.play(&c, 2000, get)
		m.cost = [protocols]float64{pipeline: 0.020, get: 0.026, put: 0.08, split: 0.026}
		m.play(&c, 200*burst, pipeline)
		if good := m.play(&c, 200, pipeline); good < 150 {
			t.Errorf("burst %d: 200 messages after the change %d of 200 go by the best protocol: %v", burst, good, c.Estimates())
		}
	}
}

// In a window one sample is 64 messages, and the first sample after the change already
// replaces the protocol.
func TestSelector_BestBecomesSlow_IsReplaced(t *testing.T) {
	for _, burst := range []int{1, 3} {
		m := &coldRingMachine{coldFactor: 1, cost: [protocols]float64{pipeline: 0.06, get: 0.11, put: 0.5, split: 0.2}}
		c := newSim(burst, pipeline)
		m.play(&c, 1000, pipeline)
		m.cost[pipeline] = 0.6
		m.play(&c, 300, get)
		if good := m.play(&c, 200, get); good < 150 {
			t.Errorf("burst %d: %d of 200 messages used the best protocol: %v", burst, good, c.Estimates())
		}
	}
}

// The pipeline is fast only in probes, because its cache lines have rested. In use it is slow.
func TestSelector_ProtocolFastOnlyInProbes_IsRarelyUsed(t *testing.T) {
	for _, burst := range []int{1, 3} {
		for seed := range uint64(50) {
			c := newSim(burst, pipelineFull)
			cost := [protocols]float64{pipeline: 0.11, get: 0.1, put: 0.2, split: 0.12, pipelineFull: 0.033, pipelineNT: 0.06}
			last, row, frames := protocols, 0, 0
			// Messages that are accepted and not measured yet.
			var late []protocol
			play := func(n int) {
				for range n {
					w, _ := c.Select(allProtocols)
					if late = append(late, w); len(late) <= 18 {
						continue
					}
					w, late = late[0], late[1:]
					x := cost[w]
					if row++; w != last {
						row = 1
					}
					if w == pipeline {
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
			cost[pipeline], frames = 0.012, 0
			if play(30_000); frames < 10_000 {
				t.Errorf("burst %d, seed %d: it is fast in use now, and %d of 30,000 messages go by it", burst, seed, frames)
			}
		}
	}
}

// windowMachine simulates windows that start with the answer to the one before. As in package
// ob1, messages in flight use one protocol, up to 32 of them with a pipeline.
type windowMachine struct {
	ns [protocols]int64
	// restedMessages is the number of consecutive pipeline messages that take restedNS.
	restedMessages int
	restedNS       int64
	// interruptEvery is the average interval of interrupted messages, or 0.
	interruptEvery int
	// length is the number of messages of a window.
	length            int
	rng               *rand.Rand
	inFlight          []protocol
	lastProtocol      protocol
	consecutive, sent int
	// inStepLeft counts pipelineFull messages in lockstep, after another protocol has drained the path.
	inStepLeft int
}

// The size of a message in bytes, and the following times in ns: start of a window, the same
// with pipelineNT, change of the protocol, interruption, pipelineFull message in lockstep.
const windowBytes, windowStartNS, windowStartNTNS, switchNS, interruptNS, inStepNS = 32 << 10, 36_000, 80_000, 2000, 100_000, 2000

// play sends n messages, and returns the relative loss against the best protocol alone.
func (m *windowMachine) play(c *Selector[protocol], n int, best protocol) (loss float64) {
	var elapsed, least int64
	end := func() {
		w := m.inFlight[0]
		m.inFlight = m.inFlight[1:]
		x := m.ns[w]
		if m.consecutive++; w != m.lastProtocol {
			m.consecutive = 1
		}
		if w == pipeline && m.consecutive <= m.restedMessages {
			x = m.restedNS
		}
		least += m.ns[best]
		if w != m.lastProtocol {
			x += switchNS
			if m.inStepLeft = 0; m.rng.IntN(6) == 0 {
				m.inStepLeft = 12
			}
		}
		if m.inStepLeft > 0 && w == pipelineFull {
			m.inStepLeft--
			x = inStepNS
		}
		if m.sent++; m.sent%m.length == 0 {
			x += windowStartNS
			if w == pipelineNT {
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
		w, _ := c.Select(allProtocols)
		most := 2
		if anyPipeline.Has(w) {
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
	wide := [protocols]int64{pipeline: 3500, get: 3700, put: 3100, split: 2400, pipelineFull: 650, pipelineNT: 1300}
	both := wide
	both[split] = 300
	for _, at := range []struct {
		name   string
		ns     [protocols]int64
		best   protocol
		length int
		// often is the average interval of interrupted messages.
		often int
		known bool
		most  [3]float64
	}{
		{"frames are not doubted", wide, pipelineFull, 64, 0, false, [3]float64{0.27, 0.05, 0.05}},
		{"frames are doubted", wide, pipelineFull, 64, 0, true, [3]float64{0.15, 0.05, 0.06}},
		{"interrupts", wide, pipelineFull, 64, 200, true, [3]float64{0.10, 0.04, 0.04}},
		{"the best protocol is not the guess", both, split, 64, 0, true, [3]float64{0.27, 0.04, 0.04}},
		{"the best protocol is not the guess, interrupts", both, split, 64, 300, true, [3]float64{0.25, 0.05, 0.05}},
		{"short windows", wide, pipelineFull, 16, 0, true, [3]float64{0.27, 0.05, 0.05}},
	} {
		t.Run(at.name, func(t *testing.T) {
			var loss [3][]float64
			for seed := range uint64(machines() / 50) {
				c := newSim(3, pipelineFull)
				if at.known {
					c.Penalize(Of(pipeline))
				}
				m := &windowMachine{rng: rand.New(rand.NewPCG(seed, 9)), lastProtocol: protocols, restedMessages: 32, restedNS: 550, interruptEvery: at.often, length: at.length, ns: at.ns}
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
		c := newSim(3, pipelineFull)
		cost := [protocols]float64{pipeline: 0.1, get: 0.02, put: 0.1, split: 0.1, pipelineFull: 0.04, pipelineNT: 0.06}
		var late []protocol
		last, by := protocols, [protocols]int{}
		for i := range 30_000 {
			ways := allProtocols
			if i/30%2 == 0 {
				ways = anyPipeline
			}
			if i == 10_000 {
				cost[pipelineFull] = 0.3
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
		if by[get] < 8500 || by[pipelineNT] < 8500 {
			t.Errorf("seed %d: protocols of 18,000 messages: %v", seed, by)
		}
	}
}

// The former best protocol gets a second trial after a change, and is still slow. That raises
// no penalty, so that the selector returns when the change is reverted.
func TestSelector_ChangeIsReverted_ReturnsToBest(t *testing.T) {
	usual := [protocols]float64{pipeline: 0.3, get: 0.1, put: 0.25, split: 0.12, pipelineFull: 0.04, pipelineNT: 0.3}
	for _, burst := range []int{1, 3} {
		c := newSim(burst, pipeline)
		m := &coldRingMachine{coldFactor: 1, cost: usual}
		play := func(n int) (good int) {
			last := protocols
			for range n {
				w, _ := c.Select(allProtocols)
				c.Record(w, messageBytes, int64(m.messageCost(w)*messageBytes), burst == 1 || w == last)
				if last = w; w == pipelineFull {
					good++
				}
			}
			return good
		}
		play(1000 * burst)
		for w := range protocols {
			if w != get {
				m.cost[w] = 1.3
			}
		}
		play(2000 * burst)
		m.cost = usual
		play(6000)
		if good := play(1000); good < 900 {
			t.Errorf("burst %d: %d of 1,000 messages used the restored best protocol", burst, good)
		}
	}
}

// Every second message has a layout and can only use the pipeline.
func TestSelector_AlternatingSets_NoticesChange(t *testing.T) {
	c := newSim(1, pipeline)
	m := &coldRingMachine{coldFactor: 1, cost: [protocols]float64{pipeline: 0.2, get: 0.03, put: 0.2, split: 0.2, pipelineFull: 0.06, pipelineNT: 0.2}}
	play := func(n int) (by [protocols]int) {
		for i := range n {
			ways := allProtocols
			if i%2 == 0 {
				ways = anyPipeline
			}
			w, _ := c.Select(ways)
			c.Record(w, messageBytes, int64(m.messageCost(w)*messageBytes), true)
			by[w]++
		}
		return by
	}
	play(2000)
	m.cost[get] = 0.3
	play(400)
	if by := play(1000); by[pipelineFull] < 900 {
		t.Errorf("protocols of 1,000 messages: %v", by)
	}
}

// While two processes share one processor, all protocols that need both are slow, and get
// seems the best. The transition ends after a few messages, and the selector returns long
// before the probe limits would allow it. Times are recorded some messages later. If the
// costs stay, the return is cheap.
func TestSelector_ShortTransition_ReturnsToFormerBest(t *testing.T) {
	usual := [protocols]float64{pipeline: 0.05, get: 0.1, put: 0.25, split: 0.12, pipelineFull: 0.04, pipelineNT: 0.08}
	for _, burst := range []int{1, 3} {
		for seed := range uint64(50) {
			c := newSim(burst, pipeline)
			m := &coldRingMachine{coldFactor: 1, cost: usual}
			var late []protocol
			elapsed := 0.
			play := func(n int) (by [protocols]int) {
				for range n {
					w, _ := c.Select(allProtocols)
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
			for w := range protocols {
				if w != get {
					m.cost[w] = 1.3
				}
			}
			moment := 15
			// The first sample after the change.
			if burst > 1 {
				moment = 2 * 64
			}
			play(moment)
			m.cost = usual
			play(after)
			if by := play(200); by[pipelineFull] < 150 {
				t.Errorf("burst %d, seed %d: %d messages after the change %v of 200 used each protocol: %v", burst, seed, after, by, c.Estimates())
			}
			// This time the change stays.
			for w := range protocols {
				if w != get {
					m.cost[w] = 1.3
				}
			}
			play(after)
			elapsed = 0
			if play(1000); elapsed > 1.08*1000*m.cost[get] {
				t.Errorf("burst %d, seed %d: 1000 messages after a lasting change take %.2f times as long as by the best protocol", burst, seed, elapsed/1000/m.cost[get])
			}
		}
	}
}

// The first message by an option finds cold memory, and so does each one behind another option.
func TestSelector_ColdBehindOthers_FindsBest(t *testing.T) {
	cost := [protocols]float64{pipeline: 0.14, get: 0.055, put: 0.25, split: 0.08, pipelineFull: 0.14, pipelineNT: 0.11}
	const seeds = 100
	found := 0
	for seed := range uint64(seeds) {
		rng := rand.New(rand.NewPCG(seed, 3))
		c := newSim(1, pipelineFull)
		by, used, last := [protocols]int{}, [protocols]bool{}, protocols
		for range 200 {
			w, _ := c.Select(allProtocols)
			by[w]++
			x := cost[w] * math.Exp(0.1*rng.NormFloat64())
			if w != last && (w == get || w == split) {
				x *= 1.6
			}
			if !used[w] && w == get {
				x *= 1.9
			}
			used[w], last = true, w
			c.Record(w, messageBytes, int64(x*messageBytes), true)
		}
		if by[get] > 140 {
			found++
		}
	}
	if found < seeds*95/100 {
		t.Errorf("the best protocol was found at once with %d of %d seeds", found, seeds)
	}
}
