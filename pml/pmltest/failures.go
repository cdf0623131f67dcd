package pmltest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/pml"
)

func failureCases() claims {
	return claims{
		kittest.New("PeerFailureEndsEverythingPending", 3, (*fixture).peerFails),
		kittest.New("DeathOutlastsTheCard", 2, (*fixture).diesEarly),
		kittest.New("FlushedMessagesOutliveTheirSender", 2, (*fixture).flushed),
		kittest.New("ProcessThatHasLeftHarmsNoOtherReceive", 3, (*fixture).hasLeft),
		kittest.New("PeerDisconnects_PendingOperations_End", 3, (*fixture).disconnected),
		kittest.New("DisconnectedProcesses_Reconnect_ExchangeMessages", 3, (*fixture).reconnected),
		kittest.New("ReceiveFromAnySource_AllOthersLeft_Ends", 3, (*fixture).allLeft),
		kittest.New("AbortedOperation_PeerLeaves_ReturnsReasonOfAbort", 2, (*fixture).abortedAfterLeave),
		kittest.New("MemberWhoseCreationFailedIsNotWaitedFor", 2, (*fixture).refused),
		kittest.New("EndedProcessIsDroppedWithItsLastCommunicator", 2, (*fixture).guestsEnd),
		kittest.New("InspectAndRoute_PendingOperations_AreDescribed", 2, (*fixture).inspect),
	}
}

func (f *fixture) peerFails() {
	f.processes()
	f.connectAll(f.commsByRank)
	c := f.commsByRank[0]
	// The sender may still have a part of a message that is not injected, which is lost then.
	short := 100
	if steps := f.caps().Steps; !f.caps().Arrivals && len(steps) > 0 {
		short = min(short, steps[0])
	}
	for i := range 3 {
		f.send(f.commsByRank[1], 0, 1, data(i, short))
	}
	// The send may complete before the network has delivered, and its process may fail in between.
	f.send(f.commsByRank[1], 0, 5, nil)
	f.awaitArrival(c, 1, 5)
	known := f.irecv(c, 1, 2, make([]byte, 10))
	wild := f.irecv(c, pml.AnySource, 2, make([]byte, 10))
	buf := make([]byte, 10)
	other := f.irecv(c, 2, 2, buf)
	offer := f.isend(c, 1, 3, data(0, 100000), pml.Standard)
	synchronous := f.isend(c, 1, 3, data(0, 100000), pml.Synchronous)
	blocked := f.Go(func() {
		_, err := c.Recv(f.Context(), pml.Buffer{}, 1, 4, p2p)
		f.Is("blocked receive from the dead", err, framework.ErrProcFailed)
	})
	f.Until("posting", func() bool { return f.posted(0) == 4 })
	dead := f.Group()[1].Incarnation
	// The report comes first, because a transport may notice the regular close of the modules.
	f.Procs[0].Module.PeerChanged(framework.FailedEvent(dead, "signal: killed"))
	f.Check(f.Kill(1))
	f.Procs[0].Module.PeerChanged(framework.FailedEvent(dead, "signal: killed")) // The report may be repeated.
	suspend(c, 1)
	ends := func(what string, p pending, target error) {
		_, err := p.wait(f.Context())
		f.Is(what, err, target)
	}
	ends("receive from the dead", known, framework.ErrProcFailed)
	f.Is("receive from any, with a dead member", f.pendingAny(wild), framework.ErrProcFailedPending)
	if _, err := offer.wait(f.Context()); err != nil || f.caps().Arrivals { // A network may have taken the message.
		f.Is("send to the dead, offered before", err, framework.ErrProcFailed)
	}
	ends("synchronous send to the dead, offered before", synchronous, framework.ErrProcFailed)
	blocked()
	var failed *framework.ProcFailedError
	if _, err := c.Recv(f.Context(), pml.Buffer{}, 1, 9, p2p); !errors.As(err, &failed) || len(failed.Ranks) != 1 || failed.Ranks[0] != 1 {
		f.Fatalf("new receive from the dead: %v, want a ProcFailedError that names rank 1", err)
	}
	f.Is("new send to the dead", c.Send(f.Context(), pml.Buffer{}, 1, 9, p2p, pml.Standard), framework.ErrProcFailed)
	for _, mode := range []pml.Mode{pml.Standard, pml.Synchronous, pml.Ready} {
		ends("new nonblocking send to the dead, which starts", f.isend(c, 1, 9, data(0, 10), mode), framework.ErrProcFailed)
	}
	_, err := c.Probe(f.Context(), 1, 9, p2p)
	f.Is("probe for the dead", err, framework.ErrProcFailed)
	for i := range 3 { // Messages sent before the failure are delivered.
		f.want(c, 1, 1, data(i, short), 1, 1)
	}
	// Other processes continue.
	f.send(f.commsByRank[2], 0, 2, data(1, 10))
	f.got(other, buf, data(1, 10), 2, 2)
}

// diesEarly reports the failure of a process before its card comes, for its first incarnation and a
// later one.
func (f *fixture) diesEarly() {
	f.processes()
	for what, incarnation := range map[string]framework.Incarnation{
		"its first":           {ID: f.Group()[1].ID + 10, Nonce: 77},
		"another incarnation": {ID: f.Group()[1].ID, Nonce: 78},
	} {
		m := f.Procs[0].Module
		m.PeerChanged(framework.FailedEvent(incarnation, "signal: killed"))
		f.Check(m.Learn(incarnation, f.Procs[1].Card()))
		local, err := m.CIDs().Reserve()
		f.Check(err)
		c, err := m.AddComm(pml.CommSpec{ID: f.NextID(), Local: local, Members: Members(f.Group()[0].Incarnation, incarnation)})
		f.Check(err)
		_, err = c.Recv(f.Context(), pml.Buffer{}, 1, 1, p2p)
		f.Is("receive from the dead, "+what, err, framework.ErrProcFailed)
		f.Is("send to the dead, "+what, c.Send(f.Context(), pml.Buffer{}, 1, 1, p2p, pml.Synchronous), framework.ErrProcFailed)
		c.Close()
	}
}

// flushed ends a process after Flush. Its messages arrive.
func (f *fixture) flushed() {
	f.processes()
	f.connectAll(f.commsByRank)
	fresh := f.comm() // No messages were exchanged on it.
	most := 1 << 16
	if !f.caps().Arrivals { // A network accepts all messages, if not at the same time.
		most = 1 << 12
	}
	release := f.stopProgress(1)
	defer release()
	const size = 500
	sent := 0
	send := func() {
		s := f.isend(fresh[0], 1, 1, data(sent, size), pml.Standard)
		f.Check(s.r.Free(s.gen))
		sent++
	}
	offered := 0
	for sent < most && offered == 0 {
		if send(); sent%64 == 0 && f.sends(0, "queued") > 0 {
			break
		}
		if sent%64 == 0 {
			offered = f.sends(0, "offered")
		}
	}
	ended, cancel := context.WithCancelCause(f.Context())
	cancel(errEnough)
	queued := f.sends(0, "queued") > 0
	err := f.Procs[0].Module.Flush(ended)
	drained := queued && f.sends(0, "queued") == 0 // Another process drains the path in place of the receiver.
	release()
	if !drained && (queued || f.caps().Arrivals) { // A network may have taken all.
		f.Is("flush with an ended context, while sends are queued", err, errEnough)
	}
	came := 0
	if offered > 0 { // The path takes more than the receiver. The others wait until they are received.
		for ; came < sent; came++ {
			f.want(fresh[1], 0, pml.AnyTag, data(came, size), 0, 1)
		}
		for range 64 {
			send()
		}
	}
	// Posted while the messages are in flight.
	got := f.Go(func() { f.want(fresh[1], 0, pml.AnyTag, data(came, size), 0, 1) })
	f.Check(f.Procs[0].Module.Flush(f.Context()), f.Kill(0))
	got()
	for i := came + 1; i < sent; i++ {
		f.want(fresh[1], 0, pml.AnyTag, data(i, size), 0, 1)
	}
}

// flushAlone bounds a flush while the receiver makes no progress. A network may need its acknowledgment
// that a message has left.
const flushAlone = 100 * time.Millisecond

// hasLeft covers a process that sends to one that has never sent to it, and leaves. Its messages are received, and a
// receive from any source continues, although messages to it cannot be sent any more.
func (f *fixture) hasLeft() {
	f.processes()
	known, err := f.Comm(cid.PolicyAgree)
	f.Check(err)
	f.send(known[0], 1, 1, data(0, 4)) // The path in this direction is open, and none back.
	f.want(known[1], 0, 1, data(0, 4), 0, 1)
	got, from2 := make([]byte, 100), make([]byte, 4)
	first := f.irecv(f.commsByRank[1], 0, 1, got)
	wild := f.irecv(f.commsByRank[1], pml.AnySource, 2, from2)
	if !f.caps().Arrivals { // A message may leave only when the receiver's id is known.
		f.send(f.commsByRank[0], 1, 3, nil)
	}
	release := f.stopProgress(1)
	defer release()
	f.send(f.commsByRank[0], 1, 1, data(1, 100))
	alone, cancel := context.WithTimeout(f.Context(), flushAlone)
	defer cancel()
	if err = f.Procs[0].Module.Flush(alone); alone.Err() != nil {
		release()
		err = f.Procs[0].Module.Flush(f.Context())
	}
	f.Check(err)
	f.Check(f.Kill(0))
	release()
	f.got(first, got, data(1, 100), 0, 1)
	f.send(f.commsByRank[2], 1, 2, data(2, 4))
	f.got(wild, from2, data(2, 4), 2, 2)
}

// disconnected covers a live process that has disconnected this one.
func (f *fixture) disconnected() {
	f.processes()
	f.connectAll(f.commsByRank)
	c, m := f.commsByRank[0], f.Procs[0].Module
	buf := make([]byte, 4)
	known, other := f.irecv(c, 1, 2, make([]byte, 4)), f.irecv(c, 2, 2, buf)
	offer := f.isend(c, 1, 3, data(0, 4), pml.Synchronous)
	how := fmt.Errorf("%w: a reason", framework.ErrPeerDisconnected)
	for range 2 { // The report may be repeated.
		m.PeerChanged(framework.UnreachableEvent(f.Group()[1].Incarnation, how))
	}
	for what, p := range map[string]pending{"receive": known, "send": offer, "later receive": f.irecv(c, 1, 2, nil), "later send": f.isend(c, 1, 2, nil, pml.Synchronous)} {
		_, err := p.wait(f.Context())
		f.Is(what, err, framework.ErrPeerDisconnected)
		f.Is(what, err, framework.ErrTransport)
	}
	f.send(f.commsByRank[2], 0, 2, data(1, 4))
	f.got(other, buf, data(1, 4), 2, 2)
}

// reconnected reconnects two processes after a disconnect, on communicators that are created afterwards. Their
// operations with a third process continue.
func (f *fixture) reconnected() {
	f.processes()
	var modules [3]pml.Reconnector
	for i, p := range f.Procs {
		var ok bool
		if modules[i], ok = p.Module.(pml.Reconnector); !ok {
			f.Skipf("the PML does not reconnect processes")
		}
	}
	before, incarnations := f.commsByRank, [2]framework.Incarnation{f.Procs[0].Incarnation, f.Procs[1].Incarnation}
	f.connectAll(before)
	for round := range 2 {
		old := f.commsByRank
		pending := [2]pending{f.irecv(old[0], 1, 2, make([]byte, 4)), f.irecv(old[1], 0, 2, make([]byte, 4))}
		f.Procs[0].Module.PeerChanged(framework.UnreachableEvent(incarnations[1], fmt.Errorf("%w: a reason", framework.ErrPeerDisconnected)))
		if ended := modules[0].EndedPeers(); len(ended) != 1 || ended[0] != incarnations[1] {
			f.Errorf("ended incarnations are %v, want %v", ended, incarnations[1])
		}
		for i, m := range modules[:2] {
			m.Reconnect(incarnations[1-i])
		}
		for i, p := range f.Procs[:2] {
			f.Check(p.Module.Learn(incarnations[1-i], f.Procs[1-i].Card()))
			_, err := pending[i].wait(f.Context())
			f.Is("receive of before", err, framework.ErrPeerDisconnected)
			if ended := modules[i].EndedPeers(); len(ended) > 0 {
				f.Errorf("ended incarnations are still %v", ended)
			}
		}
		f.commsByRank = f.comm()
		f.connectAll(f.commsByRank)
		for _, size := range []int{4, 300_000} {
			f.each(f.commsByRank[:2], func(rank int, c pml.Comm) {
				p := f.isend(c, 1-rank, 3, data(rank, size), pml.Standard)
				f.want(c, 1-rank, 3, data(1-rank, size), 1-rank, 3)
				f.wait(p)
			})
		}
		f.Go(func() { f.send(before[0], 2, round, data(2, 4)) })
		f.want(before[2], 0, round, data(2, 4), 0, round)
	}
}

// allLeft checks that processes that leave do not fail receives from any source, except for the last one.
func (f *fixture) allLeft() {
	f.processes()
	m, c := f.Procs[0].Module, f.commsByRank[0]
	r := f.irecv(c, pml.AnySource, 1, make([]byte, 4))
	probed := make(chan error, 1)
	f.Go(func() {
		_, err := c.Probe(f.Context(), pml.AnySource, 2, p2p)
		probed <- err
	})
	m.PeerChanged(framework.LeftEvent(f.Procs[1].Incarnation))
	more := f.irecv(c, pml.AnySource, 3, make([]byte, 4))
	f.send(f.commsByRank[2], 0, 3, data(1, 4))
	if _, err := more.wait(f.Context()); err != nil {
		f.Errorf("receive from the member that is left: %v", err)
	}
	m.PeerChanged(framework.LeftEvent(f.Procs[2].Incarnation))
	_, err := r.wait(f.Context())
	f.Is("receive", err, framework.ErrPeerClosed)
	f.Is("probe", <-probed, framework.ErrPeerClosed)
	_, err = f.irecv(c, pml.AnySource, 1, make([]byte, 4)).wait(f.Context())
	f.Is("later receive", err, framework.ErrPeerClosed)
}

// abortedAfterLeave covers the failure of a third process. Rank 1 is notified first, and has left when rank 0's operations with
// it end.
func (f *fixture) abortedAfterLeave() {
	f.processes()
	f.connectAll(f.commsByRank)
	const large = 100000
	c, dead := f.commsByRank[0], &framework.ProcFailedError{Ranks: []int{7}}
	start := func(r *pml.Request, err error) pending {
		p, err := started(r, err)
		f.Check(err)
		return p
	}
	offer := start(f.commsByRank[1].Isend(buffer(data(1, large)), 0, 2, pml.Collective, pml.Standard))
	f.Until("arrival", func() bool {
		_, ok, err := c.Iprobe(1, 2, pml.Collective)
		return ok && err == nil
	})
	release := f.stopProgress(1)
	defer release()
	ops := map[string]pending{}
	for _, mode := range []pml.Mode{pml.Standard, pml.Synchronous} {
		ops[fmt.Sprint("offered send of mode ", mode)] = start(c.Isend(buffer(data(0, large)), 1, 1, pml.Collective, mode))
	}
	ops["receive that has matched"] = start(c.Irecv(buffer(make([]byte, large)), 1, 2, pml.Collective))
	ops["receive"] = start(c.Irecv(buffer(nil), 1, 3, pml.Collective))
	c.Abort(pml.Collective, dead)
	f.Procs[0].Module.PeerChanged(framework.LeftEvent(f.Procs[1].Incarnation))
	ops["later receive"] = start(c.Irecv(buffer(nil), 1, 4, pml.Collective))
	release() // A network may use a buffer until the other end makes progress.
	for what, p := range ops {
		if _, err := p.wait(f.Context()); err != nil { // A network may have taken it, or delivered it.
			f.Is(what, err, dead)
		}
	}
	f.Procs[1].Module.PeerChanged(framework.LeftEvent(f.Procs[0].Incarnation))
	_, _ = offer.wait(f.Context())
}

// refused covers a communicator that rank 0 has and rank 1 never will have. After a failure report, or a report that
// others have refused, rank 0 sends an inquiry.
func (f *fixture) refused() {
	f.processes()
	unknown := framework.Incarnation{ID: framework.MakeProcID(1, 77), Nonce: 77}
	f.refuses(func() { f.Procs[0].Module.PeerChanged(framework.FailedEvent(unknown, "test")) })
	f.refuses(func() { f.Procs[0].Module.Inquire(f.Group()[1].ID) })
}

func (f *fixture) refuses(news func()) {
	for _, first := range []string{"the question", "the refusal", "a message"} {
		h := f.half()
		refuse := func() {
			f.Procs[1].Module.Refuse(cid.Span{Base: h.commID.Base, LastSub: math.MaxUint64}, pml.AllEndpoints)
			f.Procs[1].Module.CIDs().Release(h.candidates[1])
		}
		var lost pending
		if first == "a message" {
			lost = f.isend(h.comms[0], 1, 5, data(0, 4), pml.Standard)
		}
		if first != "the question" {
			refuse()
		}
		r, any := f.irecv(h.comms[0], 1, 5, make([]byte, 4)), f.irecv(h.comms[0], pml.AnySource, 5, make([]byte, 4))
		probed := make(chan error, 1)
		f.Go(func() {
			_, err := h.comms[0].Probe(f.Context(), 1, 6, p2p)
			probed <- err
		})
		news()
		late := f.irecv(h.comms[0], 1, 5, make([]byte, 4))
		if first == "the question" {
			f.connectAll(f.commsByRank) // The inquiry has arrived, unless a network delivers it later.
			refuse()
		}
		f.Is("probe, first "+first, <-probed, framework.ErrNotMember)
		for _, p := range []pending{r, any, late, f.irecv(h.comms[0], 1, 5, make([]byte, 4)), f.irecv(h.comms[0], pml.AnySource, 5, make([]byte, 4))} {
			_, err := p.wait(f.Context())
			f.Is("receive from a member that is not in the communicator, first "+first, err, framework.ErrNotMember)
		}
		if first == "a message" {
			if _, err := lost.wait(f.Context()); err != nil { // It may have been in flight.
				f.Is("the message", err, framework.ErrNotMember)
			}
		}
		h.comms[0].Close()
	}
}

func (f *fixture) inspect() {
	const large = 100000
	r := f.irecv(f.commsByRank[1], pml.AnySource, 7, make([]byte, 9))
	s := f.isend(f.commsByRank[0], 1, 8, data(0, large), pml.Standard)
	f.awaitArrival(f.commsByRank[1], 0, 8)
	seen := f.inspection(1)
	for _, c := range seen.Comms {
		if len(c.Posted) != 1 || c.Posted[0].Tag != 7 || c.Posted[0].Peer != pml.AnySource || c.Posted[0].Bytes != 9 {
			f.Fatalf("posted: %+v", c.Posted)
		}
		if len(c.Unexpected) == 0 && !f.caps().Arrivals && len(seen.Notes) > 0 { // The notes mention it.
			continue
		}
		if len(c.Unexpected) != 1 || c.Unexpected[0].Tag != 8 || c.Unexpected[0].Peer != 0 || c.Unexpected[0].Bytes != large {
			f.Fatalf("unexpected: %+v", c.Unexpected)
		}
	}
	if n := f.sends(0, "offered"); n != 1 && f.caps().Arrivals {
		f.Fatalf("%d sends are offered, want 1", n)
	}
	if route := f.Procs[0].Module.Route(f.Group()[1].Incarnation); route.PML == "" || route.Transport == "" || route.Device == "" {
		f.Fatalf("route: %+v", route)
	}
	f.Check(r.r.Cancel(r.gen))
	_, err := r.wait(f.Context())
	f.Check(err)
	f.want(f.commsByRank[1], 0, 8, data(0, large), 0, 8)
	f.wait(s)
}
