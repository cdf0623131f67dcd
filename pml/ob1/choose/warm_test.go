package choose

import (
	"math"
	"math/rand/v2"
	"testing"
)

// coldRing is a machine on which the first messages by frames behind others find a cold ring.
type coldRing struct {
	cost [Ways]float64 // ns per byte, once warm
	cold float64       // how much the first message costs that changes to frames
	last Way
	run  int // messages in a row that went by it
}

func (m *coldRing) took(w Way) float64 {
	if w != m.last {
		m.last, m.run = w, 0
	}
	m.run++
	x := m.cost[w]
	if w == Frames && m.run <= 4 {
		x *= 1 + (m.cold-1)*float64(5-m.run)/4
	}
	return x
}

// play sends n messages, and returns how many went by way w.
func (m *coldRing) play(c *Chooser, n int, by Way) (good int) {
	last := Ways
	for range n {
		w, _ := c.Next(known)
		c.Took(w, simulated, int64(m.took(w)*simulated), c.burst == 1 || w == last)
		last = w
		if w == by {
			good++
		}
	}
	return good
}

// TestChooseFindsAWayThatWarmsUpAfterAChange: one message by frames among reads finds a cold
// ring, and takes longer than a read; the next ones would not.
func TestChooseFindsAWayThatWarmsUpAfterAChange(t *testing.T) {
	for _, burst := range []int{1, 3} {
		m := &coldRing{cold: 1.6, cost: [Ways]float64{Frames: 0.15, Read: 0.06, Write: 0.2, Both: 0.08}}
		c := New(1, burst, Frames)
		m.play(&c, 2000, Read)
		m.cost = [Ways]float64{Frames: 0.020, Read: 0.026, Write: 0.08, Both: 0.026}
		m.play(&c, 200, Frames)
		if good := m.play(&c, 200, Frames); good < 150 {
			t.Errorf("burst %d: 200 messages after the change %d of 200 go by the best way: %v", burst, good, c.Learnt())
		}
	}
}

// TestChooseNoticesThatItsWayBecameMuchSlower: in a window one measurement is 64 messages, and
// the first one after the change says at once that the machine has changed.
func TestChooseNoticesThatItsWayBecameMuchSlower(t *testing.T) {
	for _, burst := range []int{1, 3} {
		m := &coldRing{cold: 1, cost: [Ways]float64{Frames: 0.06, Read: 0.11, Write: 0.5, Both: 0.2}}
		c := New(1, burst, Frames)
		m.play(&c, 1000, Frames)
		m.cost[Frames] = 0.6
		m.play(&c, 300, Read)
		if good := m.play(&c, 200, Read); good < 150 {
			t.Errorf("burst %d: %d of 200 messages go by the best way: %v", burst, good, c.Learnt())
		}
	}
}

// TestChooseIsNotDeceivedForLong: frames find room in lines that have rested, and are fast as long as they are only
// tried. In use they are slow, and each try says the opposite.
func TestChooseIsNotDeceivedForLong(t *testing.T) {
	for _, burst := range []int{1, 3} {
		for seed := range uint64(50) {
			c := New(seed, burst, Wide)
			cost := [Ways]float64{Frames: 0.11, Read: 0.1, Write: 0.2, Both: 0.12, Wide: 0.033, Streamed: 0.06}
			last, row, frames := Ways, 0, 0
			var late []Way // messages that are accepted, and not measured yet
			play := func(n int) {
				for range n {
					w, _ := c.Next(All)
					if late = append(late, w); len(late) <= 18 {
						continue
					}
					w, late = late[0], late[1:]
					x := cost[w]
					if row++; w != last {
						row = 1
					}
					if w == Frames {
						frames++
						if row <= 12 {
							x = min(x, 0.025)
						}
					}
					c.Took(w, simulated, int64(x*simulated), burst == 1 || w == last)
					last = w
				}
			}
			play(10_000)
			if frames > 1000 {
				t.Errorf("burst %d, seed %d: %d of 10,000 messages went by a way that is fast only when it is tried", burst, seed, frames)
			}
			cost[Frames], frames = 0.012, 0
			if play(30_000); frames < 10_000 {
				t.Errorf("burst %d, seed %d: it is fast in use now, and %d of 30,000 messages go by it", burst, seed, frames)
			}
		}
	}
}

// windows is a machine whose windows begin with the answer to the one before, and go as they do in
// package ob1: by one way at a time, and as frames up to 32 of them.
type windows struct {
	ns        [Ways]int64
	rested    int // frames in a row that take restedNS
	restedNS  int64
	often     int // of so many messages one is interrupted; or 0
	length    int // messages of a window
	rng       *rand.Rand
	under     []Way // way
	last      Way
	row, sent int
	behind    int // messages by Wide that go in step, as another way has drained the path
}

// Bytes of a message; ns of the beginning of a window, and of one by Streamed, of a change of the way, of an interrupt, and of a
// message by Wide that goes in step.
const windowed, begins, beginsStreamed, changes, interrupt, inStep = 32 << 10, 36_000, 80_000, 2000, 100_000, 2000

// play sends n messages, and returns how much longer they took than by the best way alone.
func (m *windows) play(c *Chooser, n int, best Way) (loss float64) {
	var took, least int64
	end := func() {
		w := m.under[0]
		m.under = m.under[1:]
		x := m.ns[w]
		if m.row++; w != m.last {
			m.row = 1
		}
		if w == Frames && m.row <= m.rested {
			x = m.restedNS
		}
		least += m.ns[best]
		if w != m.last {
			x += changes
			if m.behind = 0; m.rng.IntN(6) == 0 {
				m.behind = 12
			}
		}
		if m.behind > 0 && w == Wide {
			m.behind--
			x = inStep
		}
		if m.sent++; m.sent%m.length == 0 {
			x += begins
			if w == Streamed {
				x += beginsStreamed - begins
			}
			least += begins
		}
		if m.often > 0 && m.rng.IntN(m.often) == 0 {
			x += interrupt
			least += interrupt
		}
		took += x
		c.Took(w, windowed, int64(float64(x)*math.Exp(0.2*m.rng.NormFloat64())), w == m.last)
		m.last = w
	}
	for range n {
		w, _ := c.Next(All)
		most := 2
		if Framed.Has(w) {
			most = 32
		}
		for len(m.under) >= most || len(m.under) > 0 && m.under[0] != w {
			end()
		}
		m.under = append(m.under, w)
	}
	return float64(took)/float64(least) - 1
}

// TestChooseIsDeceivedLessAndLessOften: the first message of a window is in what the way in use takes, and in no try. So
// each try looks good, most of all by a way that is fast until its messages have used what has rested. To find
// out takes messages, and is to be needed less and less often.
func TestChooseIsDeceivedLessAndLessOften(t *testing.T) {
	wide := [Ways]int64{Frames: 3500, Read: 3700, Write: 3100, Both: 2400, Wide: 650, Streamed: 1300}
	both := wide
	both[Both] = 300
	for _, at := range []struct {
		name   string
		ns     [Ways]int64
		best   Way
		length int // messages of a window
		often  int // of so many messages one is interrupted
		known  bool
		most   [3]float64
	}{
		{"frames are not doubted", wide, Wide, 64, 0, false, [3]float64{0.20, 0.05, 0.06}},
		{"frames are doubted", wide, Wide, 64, 0, true, [3]float64{0.15, 0.05, 0.06}},
		{"interrupts", wide, Wide, 64, 200, true, [3]float64{0.16, 0.06, 0.06}},
		{"the best way is not the guess", both, Both, 64, 0, true, [3]float64{0.27, 0.04, 0.04}},
		{"the best way is not the guess, interrupts", both, Both, 64, 300, true, [3]float64{0.25, 0.05, 0.05}},
		{"short windows", wide, Wide, 16, 0, true, [3]float64{0.27, 0.05, 0.05}},
	} {
		t.Run(at.name, func(t *testing.T) {
			var loss [3][]float64
			for seed := range uint64(200) {
				c := New(seed, 3, Wide)
				if at.known {
					c.Doubt(Of(Frames))
				}
				m := &windows{rng: rand.New(rand.NewPCG(seed, 9)), last: Ways, rested: 32, restedNS: 550, often: at.often, length: at.length, ns: at.ns}
				for i, n := range []int{1000, 9000, 20_000} {
					loss[i] = append(loss[i], m.play(&c, n, at.best))
				}
			}
			for i, what := range []string{"messages 1 to 1000", "messages 1001 to 10000", "messages 10001 to 30000"} {
				if mean := summary(t, what, loss[i]); mean > at.most[i] {
					t.Errorf("loses %.1f %%", 100*mean)
				}
			}
		})
	}
}

// TestChooseLearnsOfWindowsWherePossibleWaysAlternate: every second 30 messages have a layout, and can only come as frames.
// Those are found complete when another way is the best already, and still say that their way has become slow.
func TestChooseLearnsOfWindowsWherePossibleWaysAlternate(t *testing.T) {
	for seed := range uint64(50) {
		c := New(seed, 3, Wide)
		cost := [Ways]float64{Frames: 0.1, Read: 0.02, Write: 0.1, Both: 0.1, Wide: 0.04, Streamed: 0.06}
		var late []Way
		last, by := Ways, [Ways]int{}
		for i := range 30_000 {
			ways := All
			if i/30%2 == 0 {
				ways = Framed
			}
			if i == 10_000 {
				cost[Wide] = 0.3
			}
			w, _ := c.Next(ways)
			if i >= 12_000 {
				by[w]++
			}
			if late = append(late, w); len(late) > 30 {
				w, late = late[0], late[1:]
				c.Took(w, simulated, int64(cost[w]*simulated), w == last)
				last = w
			}
		}
		if by[Read] < 8500 || by[Streamed] < 8500 {
			t.Errorf("seed %d: by which ways 18,000 messages went: %v", seed, by)
		}
	}
}

// TestChooseForgetsAChangeThatHasGone: the way that was best is taken once more after a change, and is as slow as it has
// become. That is not what tries had said of it, and still no reason to doubt tries: the machine changes back.
func TestChooseForgetsAChangeThatHasGone(t *testing.T) {
	usual := [Ways]float64{Frames: 0.3, Read: 0.1, Write: 0.25, Both: 0.12, Wide: 0.04, Streamed: 0.3}
	for _, burst := range []int{1, 3} {
		c := New(1, burst, Frames)
		m := &coldRing{cold: 1, cost: usual}
		all := func(n int) (good int) {
			last := Ways
			for range n {
				w, _ := c.Next(All)
				c.Took(w, simulated, int64(m.took(w)*simulated), burst == 1 || w == last)
				if last = w; w == Wide {
					good++
				}
			}
			return good
		}
		all(1000 * burst)
		for w := range Ways {
			if w != Read {
				m.cost[w] = 1.3
			}
		}
		all(2000 * burst)
		m.cost = usual
		all(6000)
		if good := all(1000); good < 900 {
			t.Errorf("burst %d: %d of 1,000 messages go by the way that is best again", burst, good)
		}
	}
}

// TestChooseNoticesAChangeWherePossibleWaysAlternate: of two messages one has a layout, and can only come as frames.
func TestChooseNoticesAChangeWherePossibleWaysAlternate(t *testing.T) {
	c := New(1, 1, Frames)
	m := &coldRing{cold: 1, cost: [Ways]float64{Frames: 0.2, Read: 0.03, Write: 0.2, Both: 0.2, Wide: 0.06, Streamed: 0.2}}
	play := func(n int) (by [Ways]int) {
		for i := range n {
			ways := All
			if i%2 == 0 {
				ways = Framed
			}
			w, _ := c.Next(ways)
			c.Took(w, simulated, int64(m.took(w)*simulated), true)
			by[w]++
		}
		return by
	}
	play(2000)
	m.cost[Read] = 0.3
	play(400)
	if by := play(1000); by[Wide] < 900 {
		t.Errorf("by which ways 1,000 messages went: %v", by)
	}
}

// TestChooseReturnsAfterTheMomentOfTheChange: while two processes have one processor, all that needs both
// takes very long, and reading seems best. That is over after a few messages, and it is not to be believed for
// the hundreds that the limits on tries would take. How long a message took is known some messages later. Where
// it is not over, going back once costs little.
func TestChooseReturnsAfterTheMomentOfTheChange(t *testing.T) {
	usual := [Ways]float64{Frames: 0.05, Read: 0.1, Write: 0.25, Both: 0.12, Wide: 0.04, Streamed: 0.08}
	for _, burst := range []int{1, 3} {
		for seed := range uint64(50) {
			c := New(seed, burst, Frames)
			m := &coldRing{cold: 1, cost: usual}
			var late []Way
			took := 0.
			play := func(n int) (by [Ways]int) {
				for range n {
					w, _ := c.Next(All)
					by[w]++
					if late = append(late, w); len(late) > 3 {
						x := m.took(late[0])
						took += x
						c.Took(late[0], simulated, int64(x*simulated), burst == 1 || late[0] == late[1])
						late = late[1:]
					}
				}
				return by
			}
			after := 100 * burst * burst
			play(1000 * burst)
			for w := range Ways {
				if w != Read {
					m.cost[w] = 1.3
				}
			}
			moment := 15
			if burst > 1 { // the first measurement after the change
				moment = 2 * run
			}
			play(moment)
			m.cost = usual
			play(after)
			if by := play(200); by[Wide] < 150 {
				t.Errorf("burst %d, seed %d: %d messages after the change %v of 200 go by each way: %v", burst, seed, after, by, c.Learnt())
			}
			for w := range Ways { // this time it stays so
				if w != Read {
					m.cost[w] = 1.3
				}
			}
			play(after)
			took = 0
			if play(1000); took > 1.05*1000*m.cost[Read] {
				t.Errorf("burst %d, seed %d: 1000 messages after a change that stays take %.2f of what they take by the best way", burst, seed, took/1000/m.cost[Read])
			}
		}
	}
}
