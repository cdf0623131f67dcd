package choose

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// machine is a machine as a chooser may meet it: what a message costs by each way, on
// average, and how that changes.
type machine struct {
	rng   *rand.Rand
	drawn [Ways]float64 // ns per byte
	cost  [Ways]float64 // now
	drift [Ways]float64
	noise float64
	spike float64 // how often a message is interrupted
	ways  Set
}

func newMachine(seed uint64) *machine {
	m := &machine{rng: rand.New(rand.NewPCG(seed, 7))}
	m.draw()
	m.noise = 0.02 + 0.2*m.rng.Float64()
	m.spike = 0.02 * m.rng.Float64()
	m.ways = Set(m.rng.IntN(int(All))) | Of(Frames)
	if m.rng.IntN(3) > 0 {
		m.ways = All
	}
	return m
}

// draw makes it another machine: what ways cost lies within a factor of 6.
func (m *machine) draw() {
	level := 0.02 * math.Exp(2*m.rng.Float64())
	for w := range Ways {
		m.drawn[w] = level * math.Exp(math.Log(6)*m.rng.Float64())
		m.cost[w] = m.drawn[w]
		m.drift[w] = 0.0004 * m.rng.NormFloat64()
	}
}

// step is the time between two messages. Costs drift, up to half as much again.
func (m *machine) step() {
	for w := range Ways {
		if r := m.cost[w] / m.drawn[w]; m.rng.IntN(500) == 0 || r > 1.5 && m.drift[w] > 0 || r < 1/1.5 && m.drift[w] < 0 {
			m.drift[w] = -m.drift[w]
		}
		m.cost[w] *= 1 + m.drift[w]
	}
}

// took returns how long a message takes.
func (m *machine) took(w Way, bytes int64) int64 {
	t := m.cost[w] * float64(bytes) * math.Exp(m.noise*m.rng.NormFloat64())
	if m.rng.Float64() < m.spike {
		t *= 2 + 20*m.rng.Float64()
	}
	return int64(t)
}

// best returns what knows the costs would take.
func (m *machine) best() float64 {
	least := math.Inf(1)
	for w := range Ways {
		if m.ways.Has(w) {
			least = min(least, m.cost[w])
		}
	}
	return least
}

const simulated = 1 << 20 // bytes of a message

// run sends n messages and returns how much longer they took, on average, than by the best
// way each time.
func (m *machine) run(c *Chooser, n int) (loss float64) {
	var took, least float64
	for range n {
		m.step()
		w, _ := c.Next(m.ways)
		took += m.cost[w]
		least += m.best()
		c.Took(w, simulated, m.took(w, simulated), true)
	}
	return took/least - 1
}

func summary(t *testing.T, what string, all []float64) (mean float64) {
	slices.Sort(all)
	for _, x := range all {
		mean += x
	}
	mean /= float64(len(all))
	t.Logf("%s: mean %.2f %%, median %.2f %%, 95 of 100 below %.2f %%, most %.1f %%", what, 100*mean, 100*all[len(all)/2], 100*all[len(all)*95/100], 100*all[len(all)-1])
	return mean
}

// machines is how many are simulated.
func machines() int {
	if testing.Short() {
		return 1000
	}
	return 10000
}

// TestChooseLosesLittle: against somebody who knows what each way costs at any time, the
// first messages included.
func TestChooseLosesLittle(t *testing.T) {
	var first, second, changed, followed []float64
	for seed := range uint64(machines()) {
		m := newMachine(seed)
		c := New(seed, 1, Frames)
		first = append(first, m.run(&c, 1000))
		second = append(second, m.run(&c, 1000))
		m.draw()
		changed = append(changed, m.run(&c, 200))
		x := m.run(&c, 200)
		followed = append(followed, x)
	}
	if mean := summary(t, "messages 1 to 1000", first); mean > 0.03 {
		t.Errorf("loses %.1f %% in the first 1000 messages", 100*mean)
	}
	if mean := summary(t, "messages 1001 to 2000", second); mean > 0.03 {
		t.Errorf("loses %.1f %% later", 100*mean)
	}
	summary(t, "messages 1 to 200 after a change", changed)
	if mean := summary(t, "messages 201 to 400 after a change", followed); mean > 0.045 {
		t.Errorf("200 messages after a change it loses %.1f %%", 100*mean)
	}
	if at := followed[len(followed)*95/100]; at > 0.25 {
		t.Errorf("200 messages after a change 5 of 100 machines lose %.1f %% or more", 100*at)
	}
}

// TestChooseExpectsWhatMessagesMuchAlikeHaveShown: what each way costs differs by some percent
// from one class of sizes to the next. Who expects that loses less.
func TestChooseExpectsWhatMessagesMuchAlikeHaveShown(t *testing.T) {
	var alone, expecting [2][]float64
	for seed := range uint64(machines()) {
		m := newMachine(seed)
		like := New(seed, 1, Frames)
		m.run(&like, 400)
		for w := range Ways {
			m.drawn[w] *= math.Exp(0.3 * m.rng.NormFloat64())
			m.cost[w] = m.drawn[w]
		}
		same := *m
		m.rng, same.rng = rand.New(rand.NewPCG(seed, 8)), rand.New(rand.NewPCG(seed, 8))
		c, d := New(seed+1, 1, Frames), New(seed+1, 1, Frames)
		d.Expect(&like)
		for i, n := range []int{200, 800} {
			alone[i] = append(alone[i], m.run(&c, n))
			expecting[i] = append(expecting[i], same.run(&d, n))
		}
	}
	a, e := summary(t, "messages 1 to 200", alone[0]), summary(t, "the same, expecting", expecting[0])
	if e > 0.6*a {
		t.Errorf("loses %.1f %% in the first 200 messages, and %.1f %% where nothing is expected", 100*e, 100*a)
	}
	a2, e2 := summary(t, "messages 201 to 1000", alone[1]), summary(t, "the same, expecting", expecting[1])
	if a, e = a+4*a2, e+4*e2; e > a {
		t.Errorf("loses %.1f %% in the first 1000 messages, and %.1f %% where nothing is expected", 20*e, 20*a)
	}
}

// TestChooseTriesWhatIsLeft: of all ways that are not hopeless none is possible any more.
func TestChooseTriesWhatIsLeft(t *testing.T) {
	cost := [Ways]float64{Frames: 0.3, Read: 0.01, Write: 0.2, Both: 0.4}
	like := New(1, 1, Frames)
	play := func(c *Chooser, ways Set) (by [Ways]int) {
		for range 1000 {
			w, _ := c.Next(ways)
			by[w]++
			c.Took(w, simulated, int64(cost[w]*simulated), true)
		}
		return by
	}
	play(&like, known)
	c := New(1, 1, Frames)
	c.Expect(&like)
	if by := play(&c, known&^Of(Read)); by[Write] < 850 {
		t.Errorf("by which ways 1000 messages went: %v", by)
	}
}

// TestChooseTriesSeldom counts in any 1000 messages once all ways were tried.
func TestChooseTriesSeldom(t *testing.T) {
	for _, burst := range []int{1, 2, 3} {
		var shares []float64
		for seed := range uint64(machines() / 10) {
			m := newMachine(seed)
			c := New(seed, burst, Frames)
			m.run(&c, 100)
			tries, messages := 0, 10000
			var tried, all float64
			for range messages {
				m.step()
				best := c.Best()
				w, trial := c.Next(m.ways)
				ns := m.took(w, simulated)
				all += m.cost[w]
				if trial && w != best {
					tries++
					tried += m.cost[w]
				}
				c.Took(w, simulated, ns, true)
			}
			if most := messages/TriesPer + mostSaved; tries > most {
				t.Fatalf("seed %d: %d of %d messages tried another way, at most %d may", seed, tries, messages, most)
			}
			shares = append(shares, tried/all)
		}
		// What was saved up before counts, too.
		if mean := summary(t, "share of time that tries take", shares); mean > TimeShare {
			t.Errorf("tries take %.2f %% of the time", 100*mean)
		}
		if most := shares[len(shares)-1]; most > 1.5*TimeShare {
			t.Errorf("tries took %.2f %% of the time on one machine", 100*most)
		}
	}
}

// TestChooseFollowsOneWayThatGetsFast: nothing else changes, so that only a try shows it.
// The limits on tries bound how soon a way is seen that has cost much.
func TestChooseFollowsOneWayThatGetsFast(t *testing.T) {
	found := 0
	const machines = 1000
	for seed := range uint64(machines) {
		m := newMachine(seed)
		m.ways = Of(Frames, Read, Both)
		m.drawn = [Ways]float64{0.1, 0.13, 0, 0.15}
		m.cost = m.drawn
		c := New(seed, 1, Frames)
		m.run(&c, 1000)
		m.drawn[Read], m.cost[Read] = 0.05, 0.05
		m.run(&c, 200)
		if c.Best() == Read {
			found++
		}
	}
	t.Logf("%d of %d were found within 200 messages", found, machines)
	if found < machines*9/10 {
		t.Errorf("%d of %d were found within 200 messages", found, machines)
	}
}

func TestChooseIsTheSameForTheSameSeedAndTimes(t *testing.T) {
	run := func() (ways []Way) {
		m := newMachine(5)
		c := New(9, 2, Both)
		for range 3000 {
			m.step()
			w, _ := c.Next(m.ways)
			ways = append(ways, w)
			c.Took(w, simulated, m.took(w, simulated), true)
		}
		return ways
	}
	if !slices.Equal(run(), run()) {
		t.Error("two runs chose differently")
	}
}

// TestChooseTakesOnlyWhatIsPossible, also when a way drops out under way.
func TestChooseTakesOnlyWhatIsPossible(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for seed := range uint64(200) {
		m := newMachine(seed)
		c := New(seed, 1+int(seed%3), Way(seed%uint64(Ways)))
		for k := range 2000 {
			if k%100 == 0 {
				m.ways = Set(1 + rng.IntN(int(All)))
			}
			w, _ := c.Next(m.ways)
			if !m.ways.Has(w) {
				t.Fatalf("seed %d: %v of %b", seed, w, m.ways)
			}
			c.Took(w, simulated, rng.Int64N(1<<40)-5, rng.IntN(2) == 0)
		}
	}
}

func TestChooseAllocatesNothing(t *testing.T) {
	m := newMachine(1)
	c := New(1, 1, Frames)
	if n := testing.AllocsPerRun(1000, func() { m.run(&c, 1) }); n != 0 {
		t.Errorf("%v allocations per message", n)
	}
}

// known are the ways whose costs the tests below say.
const known = Set(1<<Frames | 1<<Read | 1<<Write | 1<<Both)

// TestChooseForgivesASlowBeginning: the first messages of the best way met a process that was
// still starting, and took a hundred times as long.
func TestChooseForgivesASlowBeginning(t *testing.T) {
	for _, burst := range []int{1, 2, 3} {
		c := New(1, burst, Frames)
		cost := [Ways]float64{Frames: 0.05, Read: 0.03, Write: 0.06, Both: 0.01}
		met, good := 0, 0
		for i := range 20_000 {
			w, _ := c.Next(known)
			x := cost[w]
			if w == Both {
				if met++; met <= first {
					x *= 100
				}
				if i >= 15_000 {
					good++
				}
			}
			c.Took(w, simulated, int64(x*simulated), true)
		}
		if good < 4_500 {
			t.Errorf("burst %d: %d of the last 5,000 messages went by the best way", burst, good)
		}
	}
}

// TestChooseSeesWindowsAsAWhole: the first messages of each window are slow, as their sender
// is starting the others, and shares end in pairs. Neither is a change of the machine.
func TestChooseSeesWindowsAsAWhole(t *testing.T) {
	c := New(1, 3, Frames)
	last, good := Ways, 0
	for i := range 20_000 {
		w, _ := c.Next(known)
		x := [Ways]float64{Frames: 0.020, Read: 0.033, Write: 0.060, Both: 0.019}[w]
		switch {
		case w == Frames && i%64 < 4: // 0.025 on average
			x = 0.100
		case w == Both && i%2 == 0: // 0.034
			x = 0.050
		}
		c.Took(w, simulated, int64(x*simulated), w == last)
		last = w
		if w == Frames {
			good++
		}
	}
	if good < 18_000 {
		t.Errorf("%d of 20,000 messages went by the best way", good)
	}
}
