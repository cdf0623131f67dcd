package ofi

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl/base"
	"github.com/ferrympi/ferry/mtl/trial"
)

// Calls of libfabric that connect to a peer, register memory or close an endpoint may block for
// seconds. A goroutine makes them without the engine's lock, for every provider
// (docs/decisions/first-contact.md). libfabric requires that calls on an endpoint don't overlap, so the call
// owns the endpoint until it returns. Other operations are queued, and Poll only checks whether the call
// has returned.

// offloadedCall is a call in progress.
type offloadedCall struct {
	returned chan struct{} // closed by the goroutine
	// onReturn runs after the call has returned, with the engine's lock.
	onReturn func()
	patience *trial.Patience
	// closesEndpoint is set for the call that closes a failed endpoint.
	closesEndpoint bool
}

// offloader runs offloaded calls one at a time.
type offloader struct {
	// activeCall owns the endpoint; nil if no call is in progress.
	activeCall   *offloadedCall
	runningCalls sync.WaitGroup
	// queuedCalls are functions that start further calls.
	queuedCalls []func()
	// drainsProbes is set while the first queued call waits for the provider's probes to end.
	drainsProbes bool
	// pendingCancels are slots to cancel when the active call has returned.
	pendingCancels []uint32
}

// errCallHangs is the failure of a module whose call does not return.
var errCallHangs = errors.New("the call that makes a peer or memory known does not return")

// queueOffload queues start, which may call runOffloaded. startOffloads or the next Poll runs it.
func (m *module) queueOffload(start func()) {
	m.offloader.queuedCalls = append(m.offloader.queuedCalls, start)
}

// startOffloads runs queued functions until a call is active. It waits until the provider holds no
// probe, because nothing reads the completion of a probe during the call. No probe starts while
// it waits.
func (m *module) startOffloads() {
	o := &m.offloader
	for o.activeCall == nil && m.Err == nil && len(o.queuedCalls) > 0 {
		if m.postedCounts.probes > 0 {
			o.drainsProbes = true
			return
		}
		o.drainsProbes = false
		start := o.queuedCalls[0]
		o.queuedCalls = o.queuedCalls[1:]
		start()
	}
}

// runOffloaded makes call in a goroutine, which rings the engine's bell at the end. The Poll after that
// runs complete.
func (m *module) runOffloaded(call, complete func()) *offloadedCall {
	c := &offloadedCall{returned: make(chan struct{}), onReturn: complete, patience: trial.NewPatience(m.connectTimeout)}
	m.offloader.activeCall = c
	ring := func() {}
	if m.Env.Engine != nil {
		ring = m.Env.Bell().Ring
	}
	m.offloader.runningCalls.Add(1)
	go func() {
		defer m.offloader.runningCalls.Done()
		call()
		close(c.returned)
		ring()
	}()
	return c
}

// pollOffload reports whether a call owns the endpoint. It completes a call that has returned; the
// next queued call does not start before the endpoint was polled.
func (m *module) pollOffload() bool {
	c := m.offloader.activeCall
	if c == nil {
		return false
	}
	select {
	case <-c.returned:
		m.finishOffload()
		return false
	default:
	}
	if m.state != endpointStuck && c.patience.Over() {
		m.abandonEndpoint(errCallHangs)
	}
	return true
}

// finishOffload completes the active call. If the module has failed during the call, it closes the
// endpoint instead.
func (m *module) finishOffload() {
	c := m.offloader.activeCall
	m.offloader.activeCall = nil
	if m.Err != nil && !c.closesEndpoint {
		m.closeFailedEndpoint()
		return
	}
	c.onReturn()
	if m.Err != nil {
		return
	}
	for _, number := range m.offloader.pendingCancels {
		m.ep.Cancel(number)
	}
	m.offloader.pendingCancels = m.offloader.pendingCancels[:0]
}

// awaitOffloads drops the queued calls and blocks until the active one has returned. It reports
// false if that exceeds connectTimeout. The caller must hold no engine lock, and the engine must have
// stopped polling.
func (m *module) awaitOffloads() bool {
	o := &m.offloader
	o.queuedCalls = nil
	if o.activeCall == nil {
		o.runningCalls.Wait() // The goroutine of the last call may still ring the bell.
		return true
	}
	tick := time.NewTicker(base.PollInterval)
	defer tick.Stop()
	for {
		select {
		case <-o.activeCall.returned:
			m.finishOffload()
			o.runningCalls.Wait()
			return true
		case <-tick.C:
			if o.activeCall.patience.Over() {
				return false
			}
		}
	}
}

// closeFailedEndpoint closes the endpoint of a failed module. Operations end only then, because the
// provider may access their buffers until the endpoint is closed.
func (m *module) closeFailedEndpoint() {
	m.runOffloaded(m.ep.Close, m.endAllOps).closesEndpoint = true
}

// abandonEndpoint fails the module while a call owns the endpoint, which stays open.
func (m *module) abandonEndpoint(err error) {
	m.state = endpointStuck
	if m.Err == nil {
		m.Err = &framework.TransportError{Component: component, Op: "connect", Err: fmt.Errorf("%s: %w within %v (mtl.ofi.connect_timeout)", m.Description.Provider, err, m.connectTimeout)}
	}
	m.endAllOps()
}

// awaitsOffload reports whether a call is active whose end Poll must detect.
func (m *module) awaitsOffload() bool {
	return m.offloader.activeCall != nil && m.state != endpointStuck
}
