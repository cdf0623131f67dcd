package ofi

import (
	"fmt"
	"slices"
	"time"

	"github.com/ferrympi/ferry/framework"
)

// Close implements mtl.Module. It does not wait for connections with unsent data, which Idle does.
func (m *module) Close() error {
	if m.state == endpointClosed {
		return nil
	}
	if m.state != endpointStuck && !m.awaitOffloads() {
		m.state = endpointStuck
		m.err = errCallHangs
	}
	if m.Finish(); m.state != endpointStuck {
		m.ep.Close()
	}
	for _, s := range m.slots.all {
		s.pins.Unpin()
	}
	for _, x := range m.memory.regions {
		x.pins.Unpin()
	}
	m.pins.Unpin()
	if m.err == nil {
		m.err = fmt.Errorf("%s: %w", component, framework.ErrClosed)
	}
	m.slots, m.results = slotTable{}, resultQueue{}
	m.state = endpointClosed
	return nil
}

// drainPatience is the time for which Finish waits for messages that have arrived in part.
const drainPatience = time.Second

// Finish implements mtl.Finisher. It serves providers with the quirk DrainBeforeClose, whose endpoints must
// not be closed while a message has arrived in part. If such a message makes no progress, the endpoint stays open.
// Nothing writes into its buffers then, because nothing polls it.
func (m *module) Finish() {
	if _, ok := quirkReason(m.description.Provider, DrainBeforeClose, m.lib.Version()); !ok || m.state != endpointOpen || m.err != nil || !m.awaitOffloads() {
		return
	}
	m.state = endpointDrained
	for _, s := range m.slots.all {
		if s.isPosted && s.kind == slotReceive && !s.isCanceled {
			m.ep.Cancel(s.number)
		}
	}
	for end := time.Now().Add(drainPatience); ; {
		n, code := m.ep.Poll(m.events[:])
		for _, ev := range m.events[:n] {
			if int(ev.Slot) < len(m.slots.all) {
				m.slots.all[ev.Slot].isPosted = false
			}
		}
		if !slices.ContainsFunc(m.slots.all, (*slot).isReceiving) {
			return
		}
		if code != 0 || time.Now().After(end) {
			m.state = endpointStuck
			m.env.Logger.Warn("mtl ofi: endpoint stays open: a message has arrived in part and makes no progress", "provider", m.description.Provider)
			return
		}
		if n == 0 {
			time.Sleep(pollInterval / 10)
		}
	}
}
