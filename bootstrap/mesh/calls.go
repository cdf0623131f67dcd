package mesh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/join"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/framework"
)

// defaultAnswerGrace is the time for which a withdrawn call waits for the coordinator to confirm
// and to name the missing members.
const defaultAnswerGrace = 5 * time.Second

// call is a request of this process that waits for its answer.
type call struct {
	id uint64
	// Rank that the request goes to. Guarded by endpoint.mu and callTable.mu.
	target uint32
	// Rank that the request is for. It differs from target if target relays the request.
	coordinator uint32
	kind        wire.Kind
	frame       []byte
	// Has room for the answer.
	result chan answer
	// Request that a relayed call stands for. Without a link, the answer goes to result.
	origin request

	// Guarded by endpoint.mu.
	link       *link
	isCanceled bool
}

// answer is a Reply or Failure, or the error that replaces them.
type answer struct {
	msg wire.Message
	err error
}

// callTable has the unanswered calls. Its lock is below all others.
type callTable struct {
	mu   sync.Mutex
	byID map[uint64]*call
	// Error of all further calls.
	closeErr error

	// Guarded by endpoint.mu.
	lastID uint64
}

func (a *callTable) insert(one *call) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byID == nil {
		a.byID = map[uint64]*call{}
	}
	if a.closeErr == nil {
		a.byID[one.id] = one
	}
	return a.closeErr
}

// complete removes a call, and delivers its answer. It has no effect for an unknown id.
func (a *callTable) complete(id uint64, ans answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if call, ok := a.byID[id]; ok {
		delete(a.byID, id)
		call.deliver(ans)
	}
}

// receiveAnswer delivers the answer of a process. Answers of any other process than the target are
// ignored.
func (c *client) receiveAnswer(rank uint32, m wire.Message) {
	a := &c.pendingCalls
	a.mu.Lock()
	defer a.mu.Unlock()
	if call, ok := a.byID[m.ID]; ok && call.target == rank {
		delete(a.byID, m.ID)
		call.deliver(answer{msg: m})
	}
}

// redirect changes the target of a call.
func (a *callTable) redirect(one *call, rank uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	one.target = rank
}

func (a *callTable) forEach(f func(*call)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, call := range a.byID {
		f(call)
	}
}

// failAll fails all present and future calls with err.
func (a *callTable) failAll(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closeErr = err
	for id, call := range a.byID {
		delete(a.byID, id)
		call.deliver(answer{err: err})
	}
}

// deliver completes the call.
func (one *call) deliver(a answer) {
	if one.origin.link == nil {
		one.result <- a
		return
	}
	c := one.origin.link.client
	c.relays.remove(one.origin)
	switch {
	case a.err == nil:
		one.origin.Answer(a.msg.Kind, a.msg.Body)
	case !errors.Is(a.err, framework.ErrClosed): // A closed client sends a goodbye instead.
		one.origin.Answer(wire.Failure, wire.EncodeBody(wire.FailureBody{Code: wire.CodeNotRelayed}))
	}
}

// roundTrip sends a request, to this process too, and waits for the answer. When ctx ends or the
// deadline passes it withdraws the request. The answer to that still counts, because it may name
// the missing members or report success.
func (c *client) roundTrip(ctx context.Context, op, name string, rank uint32, k wire.Kind, body any) (wire.Message, error) {
	return c.roundTripVia(ctx, op, name, rank, rank, k, body)
}

// roundTripVia is roundTrip through the relay via, if that is connected soon.
func (c *client) roundTripVia(ctx context.Context, op, name string, via, rank uint32, k wire.Kind, body any) (wire.Message, error) {
	if ctx.Err() != nil {
		return wire.Message{}, join.OpError(op, name, context.Cause(ctx))
	}
	mine, err := c.startCall(via, rank, k, body)
	if err != nil {
		return wire.Message{}, join.OpError(op, name, err)
	}
	limit := bootstrap.Timeout(ctx, c.timeouts.call)
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	var a answer
	var waitErr, unreached error
	select {
	case a = <-mine.result:
	case <-ctx.Done():
		waitErr = context.Cause(ctx)
		a, unreached = c.withdrawCall(mine, false)
	case <-timeout.C:
		waitErr = fmt.Errorf("%w (after %v)", framework.ErrTimeout, limit)
		a, unreached = c.withdrawCall(mine, true)
	}
	if a.err != nil {
		if waitErr != nil {
			a.err = fmt.Errorf("%w: %w", waitErr, a.err)
		}
		return a.msg, join.OpError(op, name, a.err)
	}
	if a.msg.Kind == wire.Reply {
		return a.msg, nil
	}
	f, err := wire.Decode[wire.FailureBody](a.msg.Body)
	if err == nil {
		if f.Code == wire.CodeNotRelayed && via != rank {
			return a.msg, errNotRelayed
		}
		var ok bool
		if err, ok = join.FailureError(c.id, op, name, f, waitErr); !ok {
			err = c.peerError(rank, op, err)
		}
	} else {
		err = c.peerError(rank, op, err)
	}
	if unreached != nil {
		err = fmt.Errorf("%w; no answer from %s: %w", err, c.procName(rank), unreached)
	}
	return a.msg, err
}

// startCall sends a request to via, or to rank if via is not connected within relayGrace.
func (c *client) startCall(via, rank uint32, k wire.Kind, body any) (*call, error) {
	frame, err := wire.Encode(k, 0, body)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	if c.isClosed {
		c.mu.Unlock()
		return nil, c.pendingCalls.closeErr
	}
	c.pendingCalls.lastID++
	mine := &call{id: c.pendingCalls.lastID, target: via, coordinator: rank, kind: k, frame: setFrameID(frame, c.pendingCalls.lastID), result: make(chan answer, 1)}
	if err := c.pendingCalls.insert(mine); err != nil {
		c.mu.Unlock()
		return nil, err
	}
	if via != c.id.Proc.Rank {
		c.sendCall(c.peerOf(via), mine)
		if via != rank && mine.link == nil {
			c.runAfter(c.relayGrace(), func() { c.bypassRelay(mine) })
		}
		c.mu.Unlock()
		return mine, nil
	}
	mine.link = c.selfLink
	c.wg.Add(1) // The request may cause frames to others.
	c.mu.Unlock()
	defer c.wg.Done()
	m, err := wire.DecodeMessage(mine.frame[4:])
	if err == nil {
		err = c.handleMessage(c.selfLink, m)
	}
	return mine, err
}

// sendCall sends a call, or queues it for the next connection. The caller holds endpoint.mu.
func (c *client) sendCall(p *peer, call *call) {
	switch {
	case p.state == peerEnded:
		c.failCall(call, wire.FailureBody{Code: wire.CodeMissing, Failed: []uint32{p.rank}})
	case len(p.links) > 0:
		c.sendCallOn(p.links[0], call)
	default:
		p.waitingCalls = append(p.waitingCalls, call)
		c.updateDialing(p)
	}
}

// sendCallOn sends a call on l. Values for the peer to replicate precede a join. The caller holds
// endpoint.mu.
func (c *client) sendCallOn(l *link, call *call) {
	call.link = l
	if k := call.kind; (k == wire.Fence || k == wire.Construct) && call.origin.link == nil {
		c.replicateValues(l)
	}
	l.send(call.frame)
}

// resendCall repeats a call that was not completed on a connection that ended in good order. The
// caller holds endpoint.mu.
func (c *client) resendCall(p *peer, call *call) {
	if call.isCanceled {
		c.failCall(call, missingFailure(p.rank, false))
		return
	}
	if call.coordinator != p.rank { // p would have relayed it.
		c.pendingCalls.redirect(call, call.coordinator)
		p = c.peerOf(call.coordinator)
	}
	c.sendCall(p, call)
}

// failCall answers a call in place of the peer.
func (c *client) failCall(call *call, f wire.FailureBody) {
	c.pendingCalls.complete(call.id, answer{msg: wire.Message{Kind: wire.Failure, Body: wire.EncodeBody(f)}})
}

// failCalls ends calls with err. The caller holds endpoint.mu.
func (c *client) failCalls(calls *[]*call, err error) {
	for _, call := range *calls {
		c.pendingCalls.complete(call.id, answer{err: err})
	}
	*calls = nil
}

// withdrawCall withdraws a call, and returns its last answer. If the peer does not give one, this
// process does, and unreached is the reason.
func (c *client) withdrawCall(mine *call, expired bool) (a answer, unreached error) {
	c.mu.Lock()
	unreached = c.cancelCall(mine, expired)
	c.mu.Unlock()
	select {
	case a = <-mine.result:
		return a, unreached
	case <-time.After(c.timeouts.answerGrace):
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failCall(mine, missingFailure(mine.target, expired))
	return <-mine.result, c.peerError(mine.target, "wait for an answer", fmt.Errorf("%w: none within %v of the end of the call", framework.ErrTimeout, c.timeouts.answerGrace))
}

// missingFailure is the answer to a withdrawn call that rank has not answered. expired means that
// its deadline has passed.
func missingFailure(rank uint32, expired bool) wire.FailureBody {
	f := wire.FailureBody{Code: wire.CodeWithdrawn, Missing: []uint32{rank}}
	if expired {
		f.Code = wire.CodeMissing
	}
	return f
}

// cancelCall sends a withdrawal to the present target of a call. If there is no connection it
// answers the call, and unreached is the reason. The caller holds endpoint.mu.
func (c *client) cancelCall(one *call, expired bool) (unreached error) {
	one.isCanceled = true
	switch l := one.link; {
	case l == c.selfLink:
		c.cancelRequest(request{link: l, id: one.id}, expired)
	case l != nil:
		l.send(encodeFrame(wire.Cancel, one.id, wire.CancelBody{Expired: expired}))
	default:
		p := c.peerOf(one.target)
		p.waitingCalls = slices.DeleteFunc(p.waitingCalls, func(x *call) bool { return x == one })
		unreached = p.lastDialErr
		c.failCall(one, missingFailure(one.target, expired))
		c.updateDialing(p)
	}
	return unreached
}

// setFrameID changes the id of a frame of wire.Encode in place.
func setFrameID(frame []byte, id uint64) []byte {
	k := wire.Kind(frame[5])
	h, err := wire.Header(k, id, len(frame)-wire.HeaderSize)
	if err != nil {
		panic(err) // The length is unchanged.
	}
	copy(frame, h)
	return frame
}

// isAbruptClose reports whether err only shows that the other process ended, in the middle of a
// frame or with unread data.
func isAbruptClose(err error) bool {
	return err == io.ErrUnexpectedEOF || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, net.ErrClosed)
}
