package progress

import (
	"testing"
	"time"
)

// stutter is a source with an event in every second poll. It completes the wait at the end of its time. asleep counts polls on behalf of sleepers.
type stutter struct {
	e      *Engine
	over   time.Time
	polls  int
	asleep int
	wait   *Completion
}

func (s *stutter) Poll() int {
	if s.polls++; s.e.parkedWaits > 0 {
		s.asleep++
	}
	if time.Now().After(s.over) && !s.wait.Done() {
		s.e.Complete(s.wait)
	}
	return s.polls % 2
}

// The clock is read after an even number of polls. Events of earlier polls must count, because few polls of a large message have events.
func TestWait_SourceMakesProgress_DoesNotPark(t *testing.T) {
	e := New(Options{Spin: time.Microsecond * 50, Yield: time.Microsecond * 50})
	s := &stutter{e: e, over: time.Now().Add(50 * time.Millisecond), wait: new(Completion)}
	e.Add(s)
	defer e.Close()
	defer e.Remove(s)
	e.Lock()
	defer e.Unlock()
	if err := e.Wait(nil, s.wait, nil); err != nil {
		t.Fatal(err)
	}
	if s.asleep > 0 {
		t.Errorf("%d of %d polls were made for a sleeper", s.asleep, s.polls)
	}
}

// housekeeper is a source without a descriptor that never has events.
type housekeeper struct{}

func (housekeeper) Poll() int          { return 0 }
func (housekeeper) Due() time.Duration { return time.Millisecond }

// blind can only be polled.
type blind struct{ housekeeper }

func (blind) Interval() time.Duration { return time.Millisecond }

// A closed communicator is polled for its last messages. It must not extend the yielding of every wait to 20 ms.
func TestWait_SourceWithoutDescriptor_KeepsPatience(t *testing.T) {
	b := newBox(t, Options{})
	add := func(s Source) time.Duration {
		b.e.Add(s)
		defer b.e.Remove(s)
		b.e.Lock()
		defer b.e.Unlock()
		return b.e.patience()
	}
	if d := add(housekeeper{}); d != DefaultYield {
		t.Errorf("patience with a housekeeper: %v, want %v", d, DefaultYield)
	}
	if d := add(blind{}); d != polledYield {
		t.Errorf("patience with a source that can only be polled: %v, want %v", d, polledYield)
	}
}

// No bell is rung for it.
func TestTimedSource_AllSleep_IsPolled(t *testing.T) {
	b := newBox(t, Options{Spin: time.Nanosecond, Yield: time.Nanosecond})
	s := &late{e: b.e}
	b.e.Add(s)
	defer b.e.Remove(s)
	b.e.Lock()
	defer b.e.Unlock()
	if err := b.e.Wait(nil, &s.done, nil); err != nil {
		t.Fatal(err)
	}
}

// late completes the wait after a poll on behalf of sleepers.
type late struct {
	e     *Engine
	polls int
	done  Completion
}

func (s *late) Due() time.Duration { return time.Millisecond }

func (s *late) Poll() int {
	if s.e.parkedWaits == 0 {
		return 0
	}
	if s.polls++; s.polls == 5 {
		s.e.Complete(&s.done)
	}
	return 0
}

// teller reports its polls, and has no events.
type teller struct {
	polls int
	then  func(polls int)
}

func (s *teller) Poll() int {
	s.polls++
	s.then(s.polls)
	return 0
}

// Other sources are polled seldom, because each such poll delays the source that is waited for. Their work must still progress.
func TestWait_Oversubscribed_PollsOtherSourcesBeforeYielding(t *testing.T) {
	e := New(Options{Spin: OversubscribedSpin, Yield: time.Minute})
	defer e.Close()
	var c Completion
	var offers uint32
	other := &teller{then: func(n int) {
		if n == 1 {
			offers = e.yieldCount
		}
	}}
	e.Add(other)
	defer e.Remove(other)
	const most = 10 * pollsPerOther
	var seen int
	first := &teller{then: func(n int) {
		if n == pollsPerOther {
			seen = other.polls
		}
		if n == most {
			e.Complete(&c)
		}
	}}
	e.Lock()
	defer e.Unlock()
	before := e.yieldCount
	other.polls = 0 // the progress goroutine may have polled
	if err := e.Wait(nil, &c, first); err != nil {
		t.Fatal(err)
	}
	if other.polls == 0 || offers != before {
		t.Errorf("other sources were polled %d times, first after %d offers of the processor", other.polls, offers-before)
	}
	if seen != 1 {
		t.Errorf("they were polled %d times in the first %d polls", seen, pollsPerOther)
	}
	if other.polls < most/pollsPerOther {
		t.Errorf("they were polled %d times in %d polls", other.polls, most)
	}
}
