package ofi

import (
	"slices"
	"time"

	"github.com/ferrympi/ferry/mtl/base"
)

// Close implements mtl.Module. It does not wait for connections with unsent data, which Idle does.
func (m *module) Close() error {
	if m.state == endpointClosed {
		return nil
	}
	if m.state != endpointStuck && !m.awaitOffloads() {
		m.state = endpointStuck
		m.Err = errCallHangs
	}
	if m.Finish(); m.state != endpointStuck {
		m.ep.Close()
	}
	for _, s := range m.slotsByNumber {
		s.Unpin()
	}
	for _, x := range m.registrations.regions {
		x.bufferPins.Unpin()
	}
	m.EndClose()
	m.slotsByNumber = nil
	m.state = endpointClosed
	return nil
}

// drainPatience is the time for which Finish waits for messages that have arrived in part.
const drainPatience = time.Second

// Finish implements mtl.Finisher. It serves providers with the quirk DrainBeforeClose, whose endpoints must
// not be closed while a message has arrived in part. If such a message makes no progress, the endpoint stays open.
// Nothing writes into its buffers then, because nothing polls it.
func (m *module) Finish() {
	if _, ok := quirkReason(m.Description.Provider, DrainBeforeClose, m.lib.Version()); !ok || m.state != endpointOpen || m.Err != nil || !m.awaitOffloads() {
		return
	}
	m.state = endpointDrained
	for _, s := range m.slotsByNumber {
		if s.IsPosted && s.Kind == base.SlotReceive && !s.IsCanceled {
			m.ep.Cancel(s.Number)
		}
	}
	for end := time.Now().Add(drainPatience); ; {
		n, code := m.ep.Poll(m.eventBuf[:])
		for _, ev := range m.eventBuf[:n] {
			if int(ev.Slot) < len(m.slotsByNumber) {
				m.slotsByNumber[ev.Slot].IsPosted = false
			}
		}
		if !slices.ContainsFunc(m.slotsByNumber, (*slot).isReceiving) {
			return
		}
		if code != 0 || time.Now().After(end) {
			m.state = endpointStuck
			m.Env.Logger.Warn("mtl ofi: endpoint stays open: a message has arrived in part and makes no progress", "provider", m.Description.Provider)
			return
		}
		if n == 0 {
			time.Sleep(base.PollInterval / 10)
		}
	}
}
