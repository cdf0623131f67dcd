package progress

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// supply is a source of the process that publishes a token for a rank once a wait has the
// poll tokens of both engines.
type supply struct {
	process *Engine
	to      *mailbox
	// Number of tokens that may be published.
	allowed atomic.Int64
}

func (s *supply) Poll() int {
	if s.to.published.Load() < s.allowed.Load() && s.process.pollToken.isSet() && s.to.word.Polled() {
		return int(s.to.published.Add(1))
	}
	return 0
}

// The wait takes them again after the task.
func TestStopPolling_TaskOfPollingWait_ReturnsItsTokens(t *testing.T) {
	for name, wait := range map[string]func(e *Engine, c *Completion) error{
		"rank": func(e *Engine, c *Completion) error {
			e.Lock()
			defer e.Release()
			return e.Wait(nil, c, nil)
		},
		"several engines": func(e *Engine, c *Completion) error {
			m := NewMultiWait()
			defer m.Remove()
			e.Lock()
			err := m.Add(e, c)
			e.Unlock()
			if err != nil {
				return err
			}
			return m.WaitAll(nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			process := newEngine(t, Options{Spin: time.Hour})
			m := newMailbox(t, process)
			s := &supply{process: process, to: m}
			process.Add(s)
			defer process.Remove(s)
			var c Completion
			ran := false
			task := taskFunc(func(ts *Tasks) {
				ran = true
				ts.StopPolling()
				if m.word.Polled() || m.e.pollToken.load() || process.pollToken.load() {
					t.Errorf("rank polled: %t, tokens taken: %t of the rank, %t of the process", m.word.Polled(), m.e.pollToken.load(), process.pollToken.load())
				}
				ts.StopPolling() // has no effect
				s.allowed.Add(1)
			})
			m.onPoll = func() {
				if !ran {
					m.e.Defer(task)
				} else {
					m.e.Complete(&c)
				}
			}
			s.allowed.Store(1)
			if err := wait(m.e, &c); err != nil || !ran {
				t.Errorf("ran %t, %v", ran, err)
			}
			if m.word.Polled() || process.pollToken.load() {
				t.Error("the wait has kept tokens")
			}
		})
	}
}

// The first wait parks after the task.
func TestStopPolling_AnotherWaitTakesTheToken_BothFinish(t *testing.T) {
	process := newEngine(t, Options{Spin: time.Hour})
	m := newMailbox(t, process)
	var first, second Completion
	done := make(chan error)
	wait := func(c *Completion) error {
		m.e.Lock()
		defer m.e.Release()
		return m.e.Wait(nil, c, nil)
	}
	m.onPoll = func() {
		m.onPoll = func() {
			m.e.Complete(&second)
			m.e.Complete(&first)
		}
		m.e.Defer(taskFunc(func(ts *Tasks) {
			ts.StopPolling()
			go func() { done <- wait(&second) }()
			for !m.word.Polled() {
				runtime.Gosched()
			}
		}))
	}
	m.published.Add(1)
	go func() { done <- wait(&first) }()
	untilParked(process, 1) // the first one
	m.send()
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// A task of one engine may take long.
func TestMultiWait_Ends_ReturnsAllTokensBeforeTasks(t *testing.T) {
	process := newEngine(t, Options{Spin: time.Hour})
	ms := []*mailbox{newMailbox(t, process), newMailbox(t, process)}
	places := []*place{{e: ms[0].e}, {e: ms[1].e}}
	ran := false
	ms[0].onPoll = func() { // by the last poll
		ms[0].e.Defer(taskFunc(func(*Tasks) {
			ran = true
			if ms[1].word.Polled() || process.pollToken.load() {
				t.Error("a task runs while the wait has tokens")
			}
		}))
	}
	ms[1].onPoll = func() {
		ms[0].published.Add(1)
		ms[1].e.Complete(&places[1].c)
	}
	ms[1].published.Add(1)
	if err := multiWait(nil, places, false); err != nil || !ran {
		t.Errorf("ran %t, %v", ran, err)
	}
}
