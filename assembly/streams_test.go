package assembly

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/ferrympi/ferry/assembly/wireup"
	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
)

// goneWatcher records the peers that have left or are unreachable.
type goneWatcher struct {
	watcher
	gone []framework.Incarnation
}

func (w *goneWatcher) PeerChanged(ev framework.PeerEvent) {
	if ev.State == framework.Failed {
		w.watcher.PeerChanged(ev)
		return
	}
	w.gone = append(w.gone, ev.Peer)
}

// disconnects is a client that records the disconnects of this process.
type disconnects struct {
	*eventful
	sent []bootstrap.Event
}

func (c *disconnects) Disconnect(p framework.Proc, nonce uint64, reason string) {
	c.sent = append(c.sent, bootstrap.Event{Kind: bootstrap.PeerUnreachable, Proc: p, Nonce: nonce, Reason: reason})
}

func TestStream_Disconnect_EndsExchangeOfTwoStacks(t *testing.T) {
	ofProcess := new(goneWatcher)
	a, events := newHanging().open(t, ofProcess)
	defer a.Close()
	var streams [2]*Assembly
	var watchers [2]goneWatcher
	var guests [2]guest
	for i := range streams {
		s, err := a.OpenStream(t.Context(), &watchers[i])
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		streams[i], guests[i] = s, joins(t, s, 7)
	}
	inProcess := joins(t, a, 7)
	recorder := &disconnects{eventful: events}
	streams[0].client = recorder
	streams[0].disconnectPeer(guests[0].incarnation, errors.New("no path"))
	if len(recorder.sent) != 1 || recorder.sent[0].Proc != guests[0].proc || recorder.sent[0].Nonce != 7 {
		t.Fatalf("disconnects: %+v", recorder.sent)
	}
	to, from, ok := streamDisconnect(&recorder.sent[0])
	if !ok || to != 7 || from != streams[0].env.Self.Nonce || recorder.sent[0].Reason != "no path" {
		t.Fatalf("disconnect of %x to %x, %t, %q", from, to, ok, recorder.sent[0].Reason)
	}
	end := func(reason string) {
		t.Helper()
		events.event(bootstrap.Event{Kind: bootstrap.PeerUnreachable, Proc: guests[0].proc, Nonce: 7, Reason: reason})
		for _, x := range append(streams[:], a) {
			x.await()
		}
	}
	end(fmt.Sprintf(streamReason, 7, streams[0].env.Self.Nonce) + "no path")
	if !slices.Equal(watchers[0].gone, []framework.Incarnation{guests[0].incarnation}) || len(watchers[1].gone)+len(ofProcess.gone) > 0 {
		t.Errorf("disconnected are %v, in another stream %v, in the process %v", watchers[0].gone, watchers[1].gone, ofProcess.gone)
	}
	end("no path")
	if !slices.Equal(ofProcess.gone, []framework.Incarnation{inProcess.incarnation}) || len(watchers[0].gone) > 1 || len(watchers[1].gone) > 0 {
		t.Errorf("disconnected are %v, in the streams %v and %v", ofProcess.gone, watchers[0].gone, watchers[1].gone)
	}
}

// endWatcher records the peers that have ended, by their states.
type endWatcher struct {
	watcher
	peers map[framework.PeerState][]framework.Incarnation
}

func (w *endWatcher) PeerChanged(ev framework.PeerEvent) {
	if w.peers == nil {
		w.peers = map[framework.PeerState][]framework.Incarnation{}
	}
	w.peers[ev.State] = append(w.peers[ev.State], ev.Peer)
}

// A process of the parent communicator ends before a stream of this process knows it. The event may lack the nonce. The member of the new
// communicator is the process or a stream of it.
func TestStream_MemberEndsDuringWithStream_IsReported(t *testing.T) {
	for name, c := range map[string]struct {
		kind bootstrap.EventKind
		// Number of the member.
		stream int
		// The process ends before the stream is open.
		isBefore bool
		hasNonce bool
		// The process has no communicator with the member. The parent is that of another stream.
		isClosed bool
	}{
		"process has died":                         {bootstrap.PeerFailed, 0, false, true, false},
		"process has died, without a nonce":        {bootstrap.PeerFailed, 0, false, false, false},
		"stream has died, without a nonce":         {bootstrap.PeerFailed, 3, false, false, false},
		"stream has died before":                   {bootstrap.PeerFailed, 3, true, true, false},
		"stream has died, of a parent on a stream": {bootstrap.PeerFailed, 3, false, false, true},
		"process has left, without a nonce":        {bootstrap.PeerLeft, 0, false, false, false},
		"stream has left, without a nonce":         {bootstrap.PeerLeft, 3, false, false, false},
		"stream has left, of a parent on a stream": {bootstrap.PeerLeft, 3, false, false, true},
		"process has left before the stream":       {bootstrap.PeerLeft, 0, true, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			a, events := newHanging().open(t, new(endWatcher))
			defer a.Close()
			member := joins(t, a, 7)
			if !c.isClosed {
				defer member.comm.Close()
			}
			ev := bootstrap.Event{Kind: c.kind, Proc: member.proc, Reason: "test"}
			if c.hasNonce {
				ev.Nonce = member.incarnation.Nonce
			}
			if c.isBefore {
				events.event(ev)
			}
			w := new(endWatcher)
			s, err := a.OpenStream(t.Context(), w)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			defer s.HoldPeers()()
			if c.isClosed {
				member.comm.Close()
			}
			if !c.isBefore {
				events.event(ev)
				a.await()
			}
			group := []framework.Proc{s.env.Identity.Proc, member.proc.Stream(c.stream)}
			nonces := []uint64{s.env.Self.Nonce, member.incarnation.Nonce} // A process has the nonce of its stack.
			if c.stream > 0 {
				nonces[1] = 99
			}
			ids := s.pmls[0].CIDs().WithholdCandidates(cid.PolicyAgree, 2, 100)
			var payloads [][]byte
			for _, nonce := range nonces {
				b, err := wireup.Payload{Nonce: nonce, Capabilities: s.encodedCapabilities, Card: s.ownCard.encodedCard, IDs: ids.Bytes()}.Encode()
				if err != nil {
					t.Fatal(err)
				}
				payloads = append(payloads, b)
			}
			x := construction{group: group, commID: cid.Extended{Base: 5}, candidateIDs: ids, processNonces: []uint64{a.env.Self.Nonce, member.incarnation.Nonce}}
			_, spec, err := s.decideComm(t.Context(), &x, payloads)
			if err != nil {
				t.Fatal(err)
			}
			s.await()
			want := []framework.Incarnation{spec.Members.Member(1).Incarnation}
			if got := w.peers[c.kind.PeerState()]; !slices.Equal(got, want) {
				t.Errorf("reported are %v, want %v", got, want)
			}
			events.event(ev) // The one of the process may come later in the stream.
			s.await()
			for i, incarnation := range slices.Concat(w.peers[framework.Failed], w.peers[framework.Left]) {
				if i > 0 && incarnation == want[0] {
					t.Errorf("reported again: %v", w.peers)
				}
			}
		})
	}
}

func TestWhileOpen_CloseOfTheStream_WaitsForTheReader(t *testing.T) {
	a, _ := newHanging().open(t, new(goneWatcher))
	defer a.Close()
	s, err := a.OpenStream(t.Context(), new(goneWatcher))
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan error, 1)
	isOpen := s.WhileOpen(func() {
		go func() { closed <- s.Close() }()
		for s.closing.whileOpenMu.TryRLock() { // Fails once Close waits.
			s.closing.whileOpenMu.RUnlock()
			select {
			case err := <-closed:
				t.Errorf("Close returned beside a reader: %v", err)
				closed <- err
				return
			default:
				runtime.Gosched()
			}
		}
	})
	if err := <-closed; err != nil || !isOpen {
		t.Errorf("reader called: %t; Close: %v", isOpen, err)
	}
	if s.WhileOpen(func() {}) {
		t.Error("a reader is called after Close")
	}
}
