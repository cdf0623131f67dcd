package mesh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"syscall"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/calls"
	"github.com/ferrympi/ferry/bootstrap/internal/join"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
)

// defaultAnswerGrace is the time for which a withdrawn call waits for the coordinator to confirm
// and to name the missing members.
const defaultAnswerGrace = 5 * time.Second

// call is a request of this process, or one that it relays, that waits for its answer. endpoint.mu
// guards the fields that change.
type call struct {
	calls.Call
	// Rank that the request goes to.
	target uint32
	// Rank that the request is for. It differs from target if target relays the request.
	coordinator uint32
	kind        wire.Kind
	frame       []byte

	link       *link
	isCanceled bool
}

// receiveAnswer delivers the answer of a process. Answers of any other process than the target are
// ignored.
func (c *client) receiveAnswer(rank uint32, m wire.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if one, ok := c.pendingCalls.Find(m.ID); ok && one.target == rank {
		c.pendingCalls.Complete(m.ID, calls.Answer{Msg: m})
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
	mine := &call{target: via, coordinator: rank, kind: k}
	if err := c.startCall(ctx, mine, body); err != nil {
		return wire.Message{}, join.OpError(op, name, err)
	}
	var isExpired bool
	var unreached error // The reason for an answer of this process in place of the peer.
	a, waitErr := c.pendingCalls.Wait(ctx, mine, bootstrap.Timeout(ctx, c.timeouts.call), c.timeouts.answerGrace, func(expired bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		isExpired, unreached = expired, c.cancelCall(mine, expired)
	})
	if mine.IsAbandoned() {
		c.mu.Lock()
		unreached = c.peerError(mine.target, "wait for an answer", a.Err)
		a = failureAnswer(missingFailure(mine.target, isExpired))
		c.pendingCalls.Complete(mine.ID, a)
		c.mu.Unlock()
	}
	if via != rank && a.Msg.Kind == wire.Failure {
		if f, err := wire.Decode[wire.FailureBody](a.Msg.Body); err == nil && f.Code == wire.CodeNotRelayed {
			return a.Msg, errNotRelayed
		}
	}
	m, err := a.Reply(c.id, op, name, waitErr, func(op string, err error) error { return c.peerError(rank, op, err) })
	if err != nil && unreached != nil {
		err = fmt.Errorf("%w; no answer from %s: %w", err, c.procName(rank), unreached)
	}
	return m, err
}

// startCall begins a call. After an error there is none.
func (c *client) startCall(ctx context.Context, mine *call, body any) error {
	if err := c.pendingCalls.Begin(ctx, mine); err != nil {
		return err
	}
	err := c.sendRequest(mine, body)
	if err != nil {
		c.pendingCalls.Complete(mine.ID, calls.Answer{Err: err})
	}
	return err
}

// sendRequest sends the request of a call to its target, or to its coordinator if the target is not
// connected within relayGrace.
func (c *client) sendRequest(mine *call, body any) (err error) {
	if mine.frame, err = wire.Encode(mine.kind, mine.ID, body); err != nil {
		return err
	}
	c.mu.Lock()
	if err := c.pendingCalls.Err(); err != nil {
		c.mu.Unlock()
		return err
	}
	if mine.target != c.id.Proc.Rank {
		defer c.mu.Unlock()
		c.sendCall(c.peerOf(mine.target), mine)
		if mine.target != mine.coordinator && mine.link == nil {
			c.runAfter(c.relayGrace(), func() { c.bypassRelay(mine) })
		}
		return nil
	}
	mine.link = c.selfLink
	c.wg.Add(1) // The request may cause frames to others.
	c.mu.Unlock()
	defer c.wg.Done()
	m, err := wire.DecodeMessage(mine.frame[4:])
	if err == nil {
		err = c.handleMessage(c.selfLink, m)
	}
	return err
}

// sendCall sends a call, or queues it for the next connection. The caller holds endpoint.mu.
func (c *client) sendCall(p *peer, one *call) {
	switch {
	case p.state == peerEnded:
		c.failCall(one, wire.FailureBody{Code: wire.CodeMissing, Failed: []uint32{p.rank}})
	case len(p.links) > 0:
		c.sendCallOn(p.links[0], one)
	default:
		p.waitingCalls = append(p.waitingCalls, one)
		c.updateDialing(p)
	}
}

// sendCallOn sends a call on l. Values for the peer to replicate precede a join. The caller holds
// endpoint.mu.
func (c *client) sendCallOn(l *link, one *call) {
	one.link = l
	if one.kind == wire.Fence || one.kind == wire.Construct {
		c.replicateValues(l)
	}
	l.send(one.frame)
}

// resendCall repeats a call that was not completed on a connection that ended in good order. The
// caller holds endpoint.mu.
func (c *client) resendCall(p *peer, one *call) {
	if one.isCanceled {
		c.failCall(one, missingFailure(p.rank, false))
		return
	}
	if one.coordinator != p.rank { // p would have relayed it.
		one.target = one.coordinator
		p = c.peerOf(one.coordinator)
	}
	c.sendCall(p, one)
}

// failCall answers a call in place of the peer. The caller holds endpoint.mu.
func (c *client) failCall(one *call, f wire.FailureBody) {
	c.pendingCalls.Complete(one.ID, failureAnswer(f))
}

func failureAnswer(f wire.FailureBody) calls.Answer {
	return calls.Answer{Msg: wire.Message{Kind: wire.Failure, Body: wire.EncodeBody(f)}}
}

// failCalls ends calls with err. The caller holds endpoint.mu.
func (c *client) failCalls(failed *[]*call, err error) {
	for _, one := range *failed {
		c.pendingCalls.Complete(one.ID, calls.Answer{Err: err})
	}
	*failed = nil
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
		c.cancelRequest(request{link: l, id: one.ID}, expired)
	case l != nil:
		l.send(encodeFrame(wire.Cancel, one.ID, wire.CancelBody{Expired: expired}))
	default:
		p := c.peerOf(one.target)
		p.waitingCalls = slices.DeleteFunc(p.waitingCalls, func(x *call) bool { return x == one })
		unreached = p.lastDialErr
		c.failCall(one, missingFailure(one.target, expired))
		c.updateDialing(p)
	}
	return unreached
}

// isAbruptClose reports whether err only shows that the other process ended, in the middle of a
// frame or with unread data.
func isAbruptClose(err error) bool {
	return err == io.ErrUnexpectedEOF || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, net.ErrClosed)
}
