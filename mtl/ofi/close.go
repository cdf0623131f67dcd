package ofi

import (
	"fmt"
	"slices"
	"time"

	"github.com/ferrympi/ferry/framework"
)

// Close implements mtl.Module. Connections that still have something to write
// are not waited for: that is Idle's work.
func (m *module) Close() error {
	if m.closed {
		return nil
	}
	m.closed = true
	if !m.half && !m.awaitAway() {
		m.half = true
		m.broken = errHanging
	}
	if m.Finish(); !m.half {
		m.ep.Close()
	}
	for _, s := range m.slots {
		s.pins.Unpin()
	}
	for _, x := range m.regions {
		x.pins.Unpin()
	}
	m.pins.Unpin()
	if m.broken == nil {
		m.broken = fmt.Errorf("%s: %w", component, framework.ErrClosed)
	}
	m.slots, m.free, m.over = nil, nil, nil
	return nil
}

// finishPatience is how long Finish waits for messages that are half here.
const finishPatience = time.Second

// Finish implements mtl.Finisher, for libraries whose endpoints can't be closed while a
// message is half here. If that does not go on the endpoint stays open, and nobody touches
// the buffers, because nobody polls.
func (m *module) Finish() {
	if _, ok := needs(m.about.Provider, Finish, m.lib.Version()); !ok || m.finished || m.broken != nil || !m.awaitAway() {
		return
	}
	m.finished = true
	for _, s := range m.slots {
		if s.posted && s.kind == receive && !s.canceled {
			m.ep.Cancel(s.number)
		}
	}
	for end := time.Now().Add(finishPatience); ; {
		n, code := m.ep.Poll(m.events[:])
		for _, ev := range m.events[:n] {
			if int(ev.Slot) < len(m.slots) {
				m.slots[ev.Slot].posted = false
			}
		}
		if !slices.ContainsFunc(m.slots, (*slot).isReceiving) {
			return
		}
		if code != 0 || time.Now().After(end) {
			m.half = true
			m.env.Logger.Warn("mtl ofi: an endpoint stays open: a message has arrived in part, and makes no progress", "provider", m.about.Provider)
			return
		}
		if n == 0 {
			time.Sleep(pollInterval / 10)
		}
	}
}
