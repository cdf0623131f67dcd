package mpi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/ferrympi/ferry/pml"
)

// hostileChannel returns a communicator with an active partitioned send and receive, which the channel of peer 0 has.
func hostileChannel(t testing.TB) (c *Comm, s, r *Persistent) {
	t.Helper()
	ctx := context.Background()
	session, err := OpenSession(ctx)
	if err != nil {
		t.Fatal(err)
	}
	g, err := session.Group(ctx, "mpi://SELF")
	if err != nil {
		t.Fatal(err)
	}
	if c, err = CommFromGroup(ctx, g, "hostile"); err != nil {
		t.Fatal(err)
	}
	if s, err = c.PsendInit(make([]byte, 24), 3, 0, 9); err != nil {
		t.Fatal(err)
	}
	if r, err = c.PrecvInit(make([]byte, 24), 4, 0, 8); err != nil { // The test is its sender.
		t.Fatal(err)
	}
	if err := StartAll([]*Persistent{s, r}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(c.Close(), session.Close()); err != nil {
			t.Error(err)
		}
	})
	return c, s, r
}

// endPartitions ends the active operations.
func (c *Comm) endPartitions() { c.partitions.fail(c, errors.New("end of the test")) }

func TestPartitionChannel_InvalidMessage_OperationsEndWithErrTransport(t *testing.T) {
	h := func(kind partitionKind, tag int, order, round, offset, length uint64, payload int) []byte {
		x := partitionHeader{kind, tag, order, round, offset, length}
		return append(x.appendTo(nil), make([]byte, payload)...)
	}
	clearances := bytes.Repeat([]byte{0}, 0)
	for name, messages := range map[string][][]byte{
		"empty":                           {clearances},
		"short header":                    {make([]byte, partitionHeaderSize-1)},
		"longer than a header may be":     {make([]byte, partitionMessageSize+1)},
		"kind 0":                          {h(0, 8, 0, 1, 0, 0, 0)},
		"kind 5":                          {h(5, 8, 0, 1, 0, 0, 0)},
		"negative tag":                    {h(clearToSend, -1, 0, 1, 24, 1, 0)},
		"payload shorter than its length": {h(partitionData, 8, 0, 1, 0, 24, 23)},
		"payload behind clear to send":    {h(clearToSend, 9, 0, 1, 24, 1, 1)},
		"receive without initialization":  {h(partitionData, 8, 1, 1, 0, 24, 24)},
		"data of another tag":             {h(partitionData, 7, 0, 1, 0, 24, 24)},
		"data of another round":           {h(partitionData, 8, 0, 2, 0, 24, 24)},
		"refusal of another round":        {h(partitionRefuse, 8, 0, 2, 0, 0, 0)},
		"beyond the buffer":               {h(partitionData, 8, 0, 1, 20, 8, 8)},
		"offset that overflows":           {h(partitionNext, 8, 0, 1, 1<<64-1, 8, 0)},
		"length that overflows":           {h(partitionNext, 8, 0, 1, 8, 1<<64-1, 0)},
		"empty payload":                   {h(partitionData, 8, 0, 1, 0, 0, 0)},
		"bytes that arrive twice":         {h(partitionData, 8, 0, 1, 0, 8, 8), h(partitionData, 8, 0, 1, 6, 8, 8)},
		"more bytes than the buffer has":  {h(partitionNext, 8, 0, 1, 0, 20, 0), make([]byte, 20), h(partitionData, 8, 0, 1, 0, 8, 8)},
		"next message is shorter":         {h(partitionNext, 8, 0, 1, 0, 20, 0), make([]byte, 19)},
		"next message is longer":          {h(partitionNext, 8, 0, 1, 0, 20, 0), make([]byte, 21)},
		"clear to send of earlier round":  {h(clearToSend, 9, 0, 0, 24, 1, 0)},
		"clear to send twice":             {h(clearToSend, 9, 0, 1, 24, 1, 0), h(clearToSend, 9, 0, 2, 24, 1, 0), h(clearToSend, 9, 0, 2, 24, 1, 0)},
		"early clear to send twice":       {h(clearToSend, 9, 1, 1, 24, 1, 0), h(clearToSend, 9, 1, 1, 24, 1, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			c, _, r := hostileChannel(t)
			for _, m := range messages {
				q, err := c.pml.Isend(pml.Buffer{Bytes: m}, 0, c.tagMax, pml.Control, pml.Standard)
				if err == nil {
					err = q.Free(q.Generation())
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if _, err := r.Wait(t.Context()); !errors.Is(err, ErrTransport) {
				t.Errorf("receive: %v", err)
			}
			if err := r.Start(); err != nil {
				t.Fatal(err)
			}
			if _, err := r.Wait(t.Context()); !errors.Is(err, ErrTransport) {
				t.Errorf("later receive: %v", err)
			}
			c.endPartitions() // The send may have been clear, and waits for its partitions.
		})
	}
}

func TestWaits_PartitionIsNotReady_NamesPartitionsAndNoOtherProcess(t *testing.T) {
	c, s, r := hostileChannel(t)
	for what, x := range map[string]struct {
		p    *Persistent
		want string
		on   int
	}{
		"send":    {s, `waits in Wait for its send to rank 0, tag 9 (partitioned: partitions 0 to 2 not ready), communicator "hostile"`, 0},
		"receive": {r, `waits in Wait for its receive from rank 0, tag 8 (partitioned: partitions 0 to 3 not arrived), communicator "hostile"`, 1},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = x.p.Wait(ctx)
		}()
		for {
			runtime.Gosched()
			if waits := c.session.process.hangReport().Waits; len(waits) > 0 {
				if len(waits) != 1 || waits[0].What != x.want || len(waits[0].On) != x.on {
					t.Errorf("%s: %+v, want %s", what, waits, x.want)
				}
				break
			}
		}
		cancel()
		<-ended
	}
	c.endPartitions()
}

// The headers of two payloads arrive before the first payload.
func TestPartitionChannel_PayloadsAnnouncedBeyondBuffer_IsAnError(t *testing.T) {
	c, _, _ := hostileChannel(t)
	defer c.endPartitions()
	e := c.rankState.engine
	e.Lock()
	defer e.Release()
	h := partitionHeader{partitionNext, 8, 0, 1, 0, 20}
	for i, want := range []bool{true, false} {
		if err := c.partitions.channelsByPeer[0].take(h.appendTo(nil)); (err == nil) != want {
			t.Errorf("header %d: %v", i, err)
		}
	}
}

// The receiver may close its session as soon as it has all partitions.
func TestPartitionChannel_LostAfterLastPartition_SendIsNotFailed(t *testing.T) {
	c, s, r := hostileChannel(t)
	defer c.endPartitions()
	e := c.rankState.engine
	e.Lock()
	send, recv := s.partitionedOp, r.partitionedOp
	send.settleHolds++ // As a message under way would.
	send.send.unsentCount = 0
	e.Release()
	c.pml.Abort(pml.Control, ErrTransport) // Ends the receive of the next header.
	e.Lock()
	defer e.Release()
	if send.err != nil || recv.err == nil {
		t.Errorf("send: %v, receive: %v", send.err, recv.err)
	}
	send.send.unsentCount = send.partitionCount
	send.settleHolds--
}

func TestPartitionChannel_StartAfterRevocation_CountsNoActiveOperation(t *testing.T) {
	c, s, r := hostileChannel(t)
	if err := c.Revoke(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for _, p := range []*Persistent{s, r} {
			if _, err := p.Wait(t.Context()); !errors.Is(err, ErrRevoked) {
				t.Error(err)
			}
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
		}
	}
	e := c.rankState.engine
	e.Lock()
	defer e.Release()
	if n := c.partitions.channelsByPeer[0].activeCount; n != 0 || c.partitions.activeCount != 0 {
		t.Errorf("%d operations of the channel and %d of the communicator are active", n, c.partitions.activeCount)
	}
}

func TestPartitionChannel_EarlyClearances_AreBounded(t *testing.T) {
	c, _, _ := hostileChannel(t)
	defer c.endPartitions()
	e := c.rankState.engine
	e.Lock()
	defer e.Release()
	ch := c.partitions.channelsByPeer[0]
	clear(ch.earlyClearances) // That of the receive may have arrived.
	for i := range uint64(mostEarlyClearances + 1) {
		h := partitionHeader{kind: clearToSend, tag: 9, initIndex: 1 + i, round: 1}
		if err := ch.take(h.appendTo(nil)); (err != nil) != (i == mostEarlyClearances) {
			t.Fatalf("clear to send %d: %v", i, err)
		}
	}
}

func FuzzPartitionChannel_Take(f *testing.F) {
	for _, h := range []partitionHeader{
		{clearToSend, 9, 0, 1, 24, 4}, {partitionData, 8, 0, 1, 0, 8}, {partitionNext, 8, 0, 1, 0, 8}, {partitionRefuse, 8, 0, 1, 8, 1}, {clearToSend, 9, 1, 1, 24, 4},
	} {
		b := h.appendTo(nil)
		if h.kind == partitionData {
			b = append(b, make([]byte, 8)...)
		}
		f.Add(b, []byte{})
	}
	c, s, r := hostileChannel(f)
	f.Fuzz(func(t *testing.T, first, second []byte) {
		e := c.rankState.engine
		e.Lock()
		ch := c.partitions.channelsByPeer[0]
		for _, b := range [][]byte{first, second} {
			if err := ch.take(b); err != nil {
				ch.reject(err)
			}
		}
		if len(s.partitionedOp.pendingMessages)+len(r.partitionedOp.pendingMessages) > mostPartitionMessages+int(r.partitionedOp.partitionCount)*24 {
			t.Errorf("%d and %d messages", len(s.partitionedOp.pendingMessages), len(r.partitionedOp.pendingMessages))
		}
		ch.fail(errors.New("end of the round"))
		ch.invalidErr = nil
		clear(ch.earlyClearances)
		e.Release()
		for _, p := range []*Persistent{s, r} {
			_, _ = p.Wait(t.Context())
			p.partitionedOp.round, p.partitionedOp.send.hasClear = 0, false
		}
		e.Lock()
		clear(ch.failedRounds)
		ch.droppedPayload = 0
		e.Release()
		for _, p := range []*Persistent{s, r} {
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
		}
	})
	c.endPartitions()
}

// The receiver's round may fail when the sender's does not, for example in a transport.
func TestPartitionChannel_LateMessagesOfFailedRound_AreDropped(t *testing.T) {
	message := func(kind partitionKind, round, offset, length uint64, payload int) []byte {
		h := partitionHeader{kind, 8, 0, round, offset, length}
		return append(h.appendTo(nil), make([]byte, payload)...)
	}
	errLocal := errors.New("one-sided failure")
	for name, messages := range map[string]struct {
		// Header of a payload whose receive is pending at the failure, or nil.
		before []byte
		after  [][]byte
	}{
		"data":                             {nil, [][]byte{message(partitionData, 1, 0, 24, 24)}},
		"header with its payload":          {nil, [][]byte{message(partitionNext, 1, 0, 20, 0), make([]byte, 20)}},
		"longer payload":                   {nil, [][]byte{message(partitionNext, 1, 0, 2*partitionMessageSize, 0), make([]byte, 2*partitionMessageSize)}},
		"payload of a withdrawn receive":   {message(partitionNext, 1, 0, 20, 0), [][]byte{make([]byte, 20), message(partitionData, 1, 20, 4, 4)}},
		"header whose payload never comes": {nil, [][]byte{message(partitionNext, 1, 0, 20, 0)}},
		"refusal":                          {nil, [][]byte{message(partitionRefuse, 1, 0, 0, 0)}},
	} {
		for _, isFreed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, freed %v", name, isFreed), func(t *testing.T) {
				c, _, r := hostileChannel(t)
				defer c.endPartitions()
				send := func(message []byte) {
					t.Helper()
					q, err := c.pml.Isend(pml.Buffer{Bytes: message}, 0, c.tagMax, pml.Control, pml.Standard)
					if err == nil {
						err = q.Free(q.Generation())
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				e, order, round := c.rankState.engine, uint64(0), uint64(2)
				if messages.before != nil {
					send(messages.before)
					for isPosted := false; !isPosted; {
						e.Lock()
						e.Progress()
						isPosted = len(r.partitionedOp.pendingMessages) > 0 && r.partitionedOp.pendingMessages[0].isRecv
						e.Unlock()
					}
				}
				e.Lock()
				r.partitionedOp.channel.fail(errLocal)
				e.Unlock()
				if _, err := r.Wait(t.Context()); !errors.Is(err, errLocal) {
					t.Fatalf("failed round: %v", err)
				}
				for _, m := range messages.after {
					send(m)
				}
				if isFreed {
					err := r.Free()
					if err == nil {
						r, err = c.PrecvInit(make([]byte, 24), 4, 0, 8)
					}
					if err != nil {
						t.Fatal(err)
					}
					order, round = 1, 1
				}
				if err := r.Start(); err != nil {
					t.Fatal(err)
				}
				h := partitionHeader{partitionData, 8, order, round, 0, 24}
				send(append(h.appendTo(nil), make([]byte, 24)...))
				if st, err := r.Wait(t.Context()); err != nil || st.Bytes != 24 {
					t.Errorf("next round: %+v, %v", st, err)
				}
			})
		}
	}
}

func TestPartitionChannel_ReceiverIsInLaterRound_SendsFailUntilThen(t *testing.T) {
	c, s, _ := hostileChannel(t)
	defer c.endPartitions()
	const last = 3
	for round := uint64(2); round <= last; round++ {
		h := partitionHeader{clearToSend, 9, 0, round, 24, 1}
		if err := c.pml.Send(t.Context(), pml.Buffer{Bytes: h.appendTo(nil)}, 0, c.tagMax, pml.Control, pml.Standard); err != nil {
			t.Fatal(err)
		}
	}
	e := c.rankState.engine
	for hasArrived := false; !hasArrived; {
		e.Lock()
		e.Progress()
		hasArrived = s.partitionedOp.send.clear.round == last
		e.Unlock()
	}
	for round := 1; round < last; round++ {
		if _, err := s.Wait(t.Context()); !errors.Is(err, ErrTransport) {
			t.Fatalf("round %d: %v", round, err)
		}
		if err := s.Start(); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.PreadyRange(0, 2); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Wait(t.Context()); err != nil {
		t.Errorf("round %d: %v", last, err)
	}
}
