package learner

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// machine simulates a machine with its average costs, and their change.
type machine struct {
	rng *rand.Rand
	// baseCost and cost are in ns per byte. cost drifts around baseCost.
	baseCost [protocols]float64
	cost     [protocols]float64
	drift    [protocols]float64
	noise    float64
	// spikeChance is the probability of an interruption.
	spikeChance float64
	possible    Set[protocol]
}

func newMachine(seed uint64) *machine {
	m := &machine{rng: rand.New(rand.NewPCG(seed, 7))}
	m.draw()
	m.noise = 0.02 + 0.2*m.rng.Float64()
	m.spikeChance = 0.02 * m.rng.Float64()
	m.possible = Set[protocol](m.rng.IntN(int(allProtocols))) | Of(pipeline)
	if m.rng.IntN(3) > 0 {
		m.possible = allProtocols
	}
	return m
}

// draw sets random costs within a factor of 6.
func (m *machine) draw() {
	level := 0.02 * math.Exp(2*m.rng.Float64())
	for w := range protocols {
		m.baseCost[w] = level * math.Exp(math.Log(6)*m.rng.Float64())
		m.cost[w] = m.baseCost[w]
		m.drift[w] = 0.0004 * m.rng.NormFloat64()
	}
}

// step drifts the costs between two messages, by up to one half.
func (m *machine) step() {
	for w := range protocols {
		if r := m.cost[w] / m.baseCost[w]; m.rng.IntN(500) == 0 || r > 1.5 && m.drift[w] > 0 || r < 1/1.5 && m.drift[w] < 0 {
			m.drift[w] = -m.drift[w]
		}
		m.cost[w] *= 1 + m.drift[w]
	}
}

// messageTime returns the time of a message in ns.
func (m *machine) messageTime(w protocol, bytes int64) int64 {
	t := m.cost[w] * float64(bytes) * math.Exp(m.noise*m.rng.NormFloat64())
	if m.rng.Float64() < m.spikeChance {
		t *= 2 + 20*m.rng.Float64()
	}
	return int64(t)
}

// leastCost returns the lowest cost of the possible protocols.
func (m *machine) leastCost() float64 {
	least := math.Inf(1)
	for w := range protocols {
		if m.possible.Has(w) {
			least = min(least, m.cost[w])
		}
	}
	return least
}

const messageBytes = 1 << 20

// run sends n messages, and returns the relative loss against the best protocol at each time.
func (m *machine) run(c *Selector[protocol], n int) (loss float64) {
	var elapsed, least float64
	for range n {
		m.step()
		w, _ := c.Select(m.possible)
		elapsed += m.cost[w]
		least += m.leastCost()
		c.Record(w, messageBytes, m.messageTime(w, messageBytes), true)
	}
	return elapsed/least - 1
}

func logSummary(t *testing.T, what string, all []float64) (mean float64) {
	slices.Sort(all)
	for _, x := range all {
		mean += x
	}
	mean /= float64(len(all))
	t.Logf("%s: mean %.2f %%, median %.2f %%, 95 of 100 below %.2f %%, most %.1f %%", what, 100*mean, 100*all[len(all)/2], 100*all[len(all)*95/100], 100*all[len(all)-1])
	return mean
}

// machines returns the number of machines to simulate.
func machines() int {
	if testing.Short() {
		return 1000
	}
	return 10000
}

// The loss is in relation to a perfect selection, the first messages included.
func TestSelector_RandomMachines_LosesLittle(t *testing.T) {
	var first, second, changed, followed []float64
	for seed := range uint64(machines()) {
		m := newMachine(seed)
		c := newSim(1, pipeline)
		first = append(first, m.run(&c, 1000))
		second = append(second, m.run(&c, 1000))
		m.draw()
		changed = append(changed, m.run(&c, 200))
		x := m.run(&c, 200)
		followed = append(followed, x)
	}
	if mean := logSummary(t, "messages 1 to 1000", first); mean > 0.035 {
		t.Errorf("loss of %.1f %% in the first 1000 messages", 100*mean)
	}
	if mean := logSummary(t, "messages 1001 to 2000", second); mean > 0.03 {
		t.Errorf("loss of %.1f %% later", 100*mean)
	}
	logSummary(t, "messages 1 to 200 after a change", changed)
	if mean := logSummary(t, "messages 201 to 400 after a change", followed); mean > 0.065 {
		t.Errorf("loss of %.1f %% 200 messages after a change", 100*mean)
	}
	if at := followed[len(followed)*95/100]; at > 0.25 {
		t.Errorf("200 messages after a change 5 of 100 machines lose %.1f %% or more", 100*at)
	}
}

// Costs of neighboring classes differ by some percent.
func TestInherit_NeighborWithSimilarCosts_ShortensWarmup(t *testing.T) {
	var alone, expecting [2][]float64
	for seed := range uint64(machines()) {
		m := newMachine(seed)
		like := newSim(1, pipeline)
		m.run(&like, 400)
		for w := range protocols {
			m.baseCost[w] *= math.Exp(0.3 * m.rng.NormFloat64())
			m.cost[w] = m.baseCost[w]
		}
		same := *m
		m.rng, same.rng = rand.New(rand.NewPCG(seed, 8)), rand.New(rand.NewPCG(seed, 8))
		c, d := newSim(1, pipeline), newSim(1, pipeline)
		d.Inherit(&like)
		for i, n := range []int{200, 800} {
			alone[i] = append(alone[i], m.run(&c, n))
			expecting[i] = append(expecting[i], same.run(&d, n))
		}
	}
	a, e := logSummary(t, "messages 1 to 200", alone[0]), logSummary(t, "the same, inherited", expecting[0])
	if e > 0.6*a {
		t.Errorf("loss of %.1f %% in the first 200 messages, and of %.1f %% without Inherit", 100*e, 100*a)
	}
	a2, e2 := logSummary(t, "messages 201 to 1000", alone[1]), logSummary(t, "the same, inherited", expecting[1])
	if a, e = a+4*a2, e+4*e2; e > a {
		t.Errorf("loss of %.1f %% in the first 1000 messages, and of %.1f %% without Inherit", 20*e, 20*a)
	}
}

// None of the inherited protocols that are not hopeless is possible.
func TestInherit_BestProtocolImpossible_ProbesOthers(t *testing.T) {
	cost := [protocols]float64{pipeline: 0.3, get: 0.01, put: 0.2, split: 0.4}
	like := newSim(1, pipeline)
	play := func(c *Selector[protocol], ways Set[protocol]) (by [protocols]int) {
		for range 1000 {
			w, _ := c.Select(ways)
			by[w]++
			c.Record(w, messageBytes, int64(cost[w]*messageBytes), true)
		}
		return by
	}
	play(&like, fourprotocols)
	c := newSim(1, pipeline)
	c.Inherit(&like)
	if by := play(&c, fourprotocols&^Of(get)); by[put] < 850 {
		t.Errorf("protocols of 1000 messages: %v", by)
	}
}

func TestSelector_AfterWarmup_BoundsProbes(t *testing.T) {
	for _, burst := range []int{1, 2, 3} {
		var shares []float64
		for seed := range uint64(machines() / 10) {
			m := newMachine(seed)
			c := newSim(burst, pipeline)
			m.run(&c, 100)
			tries, messages := 0, 10000
			var tried, all float64
			for range messages {
				m.step()
				best := c.Best()
				w, trial := c.Select(m.possible)
				ns := m.messageTime(w, messageBytes)
				all += m.cost[w]
				if trial && w != best {
					tries++
					tried += m.cost[w]
				}
				c.Record(w, messageBytes, ns, true)
			}
			if most := int(float64(messages)*ProbeShare) + savedProbes; tries > most {
				t.Fatalf("seed %d: %d of %d messages were probes, want at most %d", seed, tries, messages, most)
			}
			shares = append(shares, tried/all)
		}
		// The budget from the warm-up counts as well.
		if mean := logSummary(t, "share of time that probes consume", shares); mean > 0.02 {
			t.Errorf("probes consume %.2f %% of the time", 100*mean)
		}
		if most := shares[len(shares)-1]; most > 0.04 {
			t.Errorf("probes consumed %.2f %% of the time on one machine", 100*most)
		}
	}
}

// Only a probe can show it. The probe limits bound how soon a formerly expensive protocol is
// probed.
func TestSelector_OtherProtocolBecomesFast_IsFound(t *testing.T) {
	found := 0
	const machines = 1000
	for seed := range uint64(machines) {
		m := newMachine(seed)
		m.possible = Of(pipeline, get, split)
		m.baseCost = [protocols]float64{0.1, 0.13, 0, 0.15}
		m.cost = m.baseCost
		c := newSim(1, pipeline)
		m.run(&c, 1000)
		m.baseCost[get], m.cost[get] = 0.05, 0.05
		m.run(&c, 200)
		if c.Best() == get {
			found++
		}
	}
	t.Logf("%d of %d were found within 200 messages", found, machines)
	if found < machines*85/100 {
		t.Errorf("%d of %d were found within 200 messages", found, machines)
	}
}

func TestSelector_EqualTimes_EqualSelections(t *testing.T) {
	run := func() (ways []protocol) {
		m := newMachine(5)
		c := newSim(2, split)
		for range 3000 {
			m.step()
			w, _ := c.Select(m.possible)
			ways = append(ways, w)
			c.Record(w, messageBytes, m.messageTime(w, messageBytes), true)
		}
		return ways
	}
	if !slices.Equal(run(), run()) {
		t.Error("two runs chose differently")
	}
}

// protocols become impossible during a burst as well.
func TestSelect_PossibleSetChanges_StaysWithinIt(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for seed := range uint64(200) {
		m := newMachine(seed)
		c := newSim(1+int(seed%3), protocol(seed%uint64(protocols)))
		for k := range 2000 {
			if k%100 == 0 {
				m.possible = Set[protocol](1 + rng.IntN(int(allProtocols)))
			}
			w, _ := c.Select(m.possible)
			if !m.possible.Has(w) {
				t.Fatalf("seed %d: %v of %b", seed, w, m.possible)
			}
			c.Record(w, messageBytes, rng.Int64N(1<<40)-5, rng.IntN(2) == 0)
		}
	}
}

func TestSelector_Message_AllocatesNothing(t *testing.T) {
	m := newMachine(1)
	c := newSim(1, pipeline)
	if n := testing.AllocsPerRun(1000, func() { m.run(&c, 1) }); n != 0 {
		t.Errorf("%v allocations per message", n)
	}
}

// fourprotocols are those with a cost in the tests below.
const fourprotocols = Set[protocol](1<<pipeline | 1<<get | 1<<put | 1<<split)

// The first messages by the best protocol take a hundred times as long, as if the peer were
// still starting.
func TestSelector_FirstMessagesSlow_FindsBest(t *testing.T) {
	for _, burst := range []int{1, 2, 3} {
		c := newSim(burst, pipeline)
		cost := [protocols]float64{pipeline: 0.05, get: 0.03, put: 0.06, split: 0.01}
		met, good := 0, 0
		for i := range 20_000 {
			w, _ := c.Select(fourprotocols)
			x := cost[w]
			if w == split {
				if met++; met <= 3 {
					x *= 100
				}
				if i >= 15_000 {
					good++
				}
			}
			c.Record(w, messageBytes, int64(x*messageBytes), true)
		}
		if good < 4_500 {
			t.Errorf("burst %d: %d of the last 5,000 messages used the best protocol", burst, good)
		}
	}
}

// The first messages of each window are slow, since the sender is still starting the others,
// and shares complete in pairs.
func TestSelector_SlowWindowStarts_AreNoChange(t *testing.T) {
	c := newSim(3, pipeline)
	last, good := protocols, 0
	for i := range 20_000 {
		w, _ := c.Select(fourprotocols)
		x := [protocols]float64{pipeline: 0.020, get: 0.033, put: 0.060, split: 0.019}[w]
		switch {
		// The average is 0.025.
		case w == pipeline && i%64 < 4:
			x = 0.100
		// The average is 0.034.
		case w == split && i%2 == 0:
			x = 0.050
		}
		c.Record(w, messageBytes, int64(x*messageBytes), w == last)
		last = w
		if w == pipeline {
			good++
		}
	}
	if good < 18_000 {
		t.Errorf("%d of 20,000 messages used the best protocol", good)
	}
}
