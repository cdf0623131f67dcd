package meet

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

// defaultAnswerGrace is how long a call whose wait has ended waits for the process that leads it
// to say so, and who was missing.
const defaultAnswerGrace = 5 * time.Second

// call is a request of this process that waits for its answer.
type call struct {
	id          uint64
	target      uint32 // whom it goes to; guarded by place.mu and answers.mu
	coordinator uint32 // whom it is for: the same, or who passes it on
	kind        wire.Kind
	frame       []byte
	result      chan answer // has room for it
	origin      request     // who gets the answer, of a call that is relayed; l is nil: answer

	// Guarded by place.mu.
	link       *link // on which it was sent; nil: it waits for one
	isCanceled bool  // its caller does not want it any more
}

// answer is what a call gets: a Reply or Failure, or the reason for neither.
type answer struct {
	msg wire.Message
	err error
}

// answers are the calls that wait. Its lock is below all others.
type callTable struct {
	mu       sync.Mutex
	byID     map[uint64]*call
	closeErr error // there will be none any more
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

// give hands an answer to its call, if there is one.
func (a *callTable) complete(id uint64, ans answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if call, ok := a.byID[id]; ok {
		delete(a.byID, id)
		call.deliver(ans)
	}
}

// answered hands on what a process has answered. Whom it has not been asked is none of its
// business.
func (c *client) receiveAnswer(rank uint32, m wire.Message) {
	a := &c.pendingCalls
	a.mu.Lock()
	defer a.mu.Unlock()
	if call, ok := a.byID[m.ID]; ok && call.target == rank {
		delete(a.byID, m.ID)
		call.deliver(answer{msg: m})
	}
}

// turn has a call go to another process.
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

// end gives err to all that wait, and to all that come.
func (a *callTable) failAll(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closeErr = err
	for id, call := range a.byID {
		delete(a.byID, id)
		call.deliver(answer{err: err})
	}
}

// done ends a call.
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
	case !errors.Is(a.err, framework.ErrClosed): // of that the other end hears a goodbye
		one.origin.Answer(wire.Failure, wire.EncodeBody(wire.FailureBody{Code: wire.CodeDirect}))
	}
}

// call asks a process, which may be this one, and waits for the answer. When ctx ends or
// the deadline passes the other one is told, and its answer still counts: it may say who
// was missing, or that the call was done after all.
func (c *client) roundTrip(ctx context.Context, op, name string, rank uint32, k wire.Kind, body any) (wire.Message, error) {
	return c.roundTripVia(ctx, op, name, rank, rank, k, body)
}

// roundTripVia is call for what goes to rank through another process, if that is soon reached.
func (c *client) roundTripVia(ctx context.Context, op, name string, via, rank uint32, k wire.Kind, body any) (wire.Message, error) {
	if ctx.Err() != nil {
		return wire.Message{}, join.OpError(op, name, context.Cause(ctx))
	}
	mine, err := c.startCall(via, rank, k, body)
	if err != nil {
		return wire.Message{}, join.OpError(op, name, err)
	}
	limit := bootstrap.Timeout(ctx, c.timeout)
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
		if f.Code == wire.CodeDirect && via != rank {
			return a.msg, errNotRelayed
		}
		var ok bool
		if err, ok = join.Error(c.id, op, name, f, waitErr); !ok {
			err = c.peerError(rank, op, err)
		}
	} else {
		err = c.peerError(rank, op, err)
	}
	if unreached != nil {
		err = fmt.Errorf("%w; %s gives no answer: %w", err, c.procName(rank), unreached)
	}
	return a.msg, err
}

// ask sends a request, as soon as there is a way: to via or, if that takes long, to rank.
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
	c.lastCallID++
	mine := &call{id: c.lastCallID, target: via, coordinator: rank, kind: k, frame: setFrameID(frame, c.lastCallID), result: make(chan answer, 1)}
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
	c.wg.Add(1) // what comes of it may go to others
	c.mu.Unlock()
	defer c.wg.Done()
	m, err := wire.DecodeMessage(mine.frame[4:])
	if err == nil {
		err = c.handleMessage(c.selfLink, m)
	}
	return mine, err
}

// send sends a call on its way, or has it wait for one. The caller holds place.mu.
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

// sendCallOn sends a call, and before a join what the peer is to keep. The caller holds
// place.mu.
func (c *client) sendCallOn(l *link, call *call) {
	call.link = l
	if k := call.kind; (k == wire.Fence || k == wire.Construct) && call.origin.link == nil {
		c.replicateValues(l)
	}
	l.send(call.frame)
}

// resendCall is send for a call whose connection has ended in good order, or has ended
// before it was answered. The caller holds place.mu.
func (c *client) resendCall(p *peer, call *call) {
	if call.isCanceled {
		c.failCall(call, missingFailure(p.rank, false))
		return
	}
	if call.coordinator != p.rank { // who would have passed it on
		c.pendingCalls.redirect(call, call.coordinator)
		p = c.peerOf(call.coordinator)
	}
	c.sendCall(p, call)
}

// failCall answers a call of this process itself.
func (c *client) failCall(call *call, f wire.FailureBody) {
	c.pendingCalls.complete(call.id, answer{msg: wire.Message{Kind: wire.Failure, Body: wire.EncodeBody(f)}})
}

// failCalls ends those calls with err. The caller holds place.mu.
func (c *client) failCalls(calls *[]*call, err error) {
	for _, call := range *calls {
		c.pendingCalls.complete(call.id, answer{err: err})
	}
	*calls = nil
}

// withdraw ends the wait of a call, and returns its last answer, which is of this process
// itself if the other one was not reached: then unreached says why.
func (c *client) withdrawCall(mine *call, expired bool) (a answer, unreached error) {
	c.mu.Lock()
	unreached = c.cancelCall(mine, expired)
	c.mu.Unlock()
	select {
	case a = <-mine.result:
		return a, unreached
	case <-time.After(c.answerGrace):
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failCall(mine, missingFailure(mine.target, expired))
	return <-mine.result, c.peerError(mine.target, "wait for an answer", fmt.Errorf("%w: none within %v of the end of the call", framework.ErrTimeout, c.answerGrace))
}

// absent is the answer to a call, whose deadline has passed or whose caller has gone, that
// rank has not answered.
func missingFailure(rank uint32, expired bool) wire.FailureBody {
	f := wire.FailureBody{Code: wire.CodeWithdrawn, Missing: []uint32{rank}}
	if expired {
		f.Code = wire.CodeMissing
	}
	return f
}

// cancelCall has a call end its wait where it is, and answers it if that is here: then
// unreached says why. The caller holds place.mu.
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

// setFrameID returns a frame of wire.Encode with another id.
func setFrameID(frame []byte, id uint64) []byte {
	k := wire.Kind(frame[5])
	h, err := wire.Header(k, id, len(frame)-wire.HeaderSize)
	if err != nil {
		panic(err) // it was as long before
	}
	copy(frame, h)
	return frame
}

// isAbruptClose reports whether err says no more than that the process at the other end has
// ended: in the middle of a frame, or with something unread.
func isAbruptClose(err error) bool {
	return err == io.ErrUnexpectedEOF || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, net.ErrClosed)
}
