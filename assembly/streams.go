package assembly

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/components/core"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/limits"
	"github.com/ferrympi/ferry/progress"
)

// A stream is a further stack of a process. It has its own engine, transports, card and nonce. Its assembly shares the
// configuration and the bootstrap client with that of the process. The stacks of other processes address it as a separate peer,
// by the name framework.Proc.Stream. The bootstrap has no name for it. An event about a process applies to its streams, too.

// streamOf is the part of an Assembly that only streams have.
type streamOf struct {
	// nil in the assembly of a process.
	ownerProcess *Assembly
	// The smallest number that no other open stream of the process has, 0 in the assembly of a process.
	streamNumber int
	// Guarded by the mutex of the process.
	isOpen bool
}

// streams are the streams of this process, and those of others that the PMLs have as peers. Guarded by Assembly.mu.
type streams struct {
	// In the order of NewStream. They include those being opened or closed, for their numbers.
	ownStreams []*Assembly
	// One for each stream number of a process.
	peerStreams map[framework.ProcID]streamPeer
	// Of ended streams of this process, for a report. There is one for each name of both ends.
	endedRoutes map[[3]int]Pair
}

// streamPeer is a stream of another process.
type streamPeer struct {
	streamNonce  uint64
	processNonce uint64
}

func (s *streams) forget(incarnation framework.Incarnation) {
	if s.peerStreams[incarnation.ID].streamNonce == incarnation.Nonce {
		delete(s.peerStreams, incarnation.ID)
	}
}

// MostStreams is the largest number of open streams of a process.
const MostStreams = 1 << 10

// streamNeed is the minimum for a stream, which has a thread for its progress goroutine and a segment.
var streamNeed = limits.Need{Files: 3, Threads: 1, Space: 16 << 20}

// OpenStream opens a stream of this process. It sends no message. w gets the events about peers of the stream. The caller closes
// the stream before the assembly.
//
// A stream has the transports of its process. If one of them does not open, the error has the reason and wraps ErrUnsupported.
// After an error no resource is left open.
func (a *Assembly) OpenStream(ctx context.Context, w Watcher) (*Assembly, error) {
	if err := streamNeed.Check(); err != nil {
		return nil, fmt.Errorf("%w: this process has no room for another stream: %w", framework.ErrUnsupported, err)
	}
	s := newAssembly(&Stack{registry: a.registry, values: a.values}, Options{Client: a.client, Watcher: w})
	s.client, s.bootstrapParams, s.threadParams = a.client, a.bootstrapParams, a.threadParams
	s.ownerProcess = a
	if err := a.addStream(s); err != nil {
		return nil, err
	}
	if err := s.openStack(ctx); err != nil {
		if framework.FailedRequest(err) != nil { // The configuration was right for the process.
			err = cmp.Or(s.failedTransport(), fmt.Errorf("%w: a stream of this process did not open: %v", framework.ErrUnsupported, err))
		}
		return nil, errors.Join(err, s.Close())
	}
	s.follow()
	return s, nil
}

// addStream reserves the number of a stream.
func (a *Assembly) addStream(s *Assembly) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.isolationErr != nil {
		return a.isolationErr
	}
	if len(a.streams.ownStreams) == MostStreams {
		return fmt.Errorf("%w: this process has %d streams, the largest number; close communicators of streams", framework.ErrUnsupported, MostStreams)
	}
	for s.streamNumber = 1; slices.ContainsFunc(a.streams.ownStreams, func(x *Assembly) bool { return x.streamNumber == s.streamNumber }); {
		s.streamNumber++
	}
	a.streams.ownStreams = append(a.streams.ownStreams, s)
	return nil
}

// openStack opens the modules of a stream.
func (s *Assembly) openStack(ctx context.Context) (err error) {
	a := s.ownerProcess
	s.selections, s.isFabricUnrequested = map[framework.Kind]*framework.Selection{}, a.isFabricUnrequested
	for kind, selection := range a.selections {
		if s.selections[kind], err = selection.Again(s.values); err != nil {
			return err
		}
	}
	var waiting core.Progress
	if err := s.values.Decode("progress", &waiting); err != nil {
		return err
	}
	opt, err := waiting.Options()
	if err != nil {
		return err
	}
	opt.Labels, opt.NodeProcs, opt.IsStream = labels(ctx, a.env.Identity.Proc), a.env.Engine.NodeProcs(), true
	identity := a.env.Identity
	identity.Proc = identity.Proc.Stream(s.streamNumber)
	worlds := framework.NewWorlds(identity.Proc.Namespace)
	s.hasLateRoutes = a.hasLateRoutes
	s.cards, s.disconnect, s.droppablePeer = cards{s}, s.disconnectPeer, s.droppable
	err = s.Stack.open(ctx, progress.Env{
		Identity: identity, Worlds: worlds, Node: a.env.Node, Engine: progress.New(opt), Logger: a.env.Logger.With("stream", s.streamNumber),
		Self: framework.Incarnation{ID: worlds.ID(identity.Proc), Nonce: newNonce()},
	}, a.hooks)
	if err != nil {
		return err
	}
	if err := s.checkTransports(); err != nil {
		return err
	}
	s.nodeProcs = newNodeProcs(&s.env)
	return s.encodeCapabilities()
}

// checkTransports returns ErrUnsupported if the stream lacks a transport of its process. It names one that failed, if there is one.
func (s *Assembly) checkTransports() error {
	if err := s.failedTransport(); err != nil {
		return err
	}
	for _, name := range s.ownerProcess.transportNames {
		if !slices.Contains(s.transportNames, name) {
			return errTransport(name, cmp.Or(s.verdict(name).Reason, "the limit of the transport is reached"))
		}
	}
	return nil
}

// failedTransport returns ErrUnsupported if a transport of the process failed to open for the stream.
func (s *Assembly) failedTransport() error {
	for _, name := range s.ownerProcess.transportNames {
		if v := s.verdict(name); v.Status == framework.StatusFailed && !slices.Contains(s.transportNames, name) {
			return errTransport(name, v.Reason)
		}
	}
	return nil
}

func errTransport(name, reason string) error {
	return fmt.Errorf("%w: %s did not open for a stream: %s; close communicators of other streams", framework.ErrUnsupported, name, reason)
}

// verdict returns the verdict on a transport in the selection of the stream. It is empty if there is none.
func (s *Assembly) verdict(name string) (v framework.Verdict) {
	kind, component, _ := strings.Cut(name, ".")
	selection := s.selections[framework.Kind(kind)]
	if selection == nil {
		return v
	}
	for _, v = range selection.Verdicts {
		if v.Name == component {
			return v
		}
	}
	return framework.Verdict{}
}

// follow lets the stream follow the events and the number of processes of its process from now on. Earlier ends of processes apply to
// members of its communicators (see catchUp).
func (s *Assembly) follow() {
	a := s.ownerProcess
	a.mu.Lock()
	defer a.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isolationErr = a.isolationErr
	s.isOpen = true
	a.publishStreams()
}

// removeStream removes a stream from the process.
func (a *Assembly) removeStream(s *Assembly) {
	var pairs []Pair
	if s.isOpen && a.hasLateRoutes {
		pairs = s.routes()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range pairs {
		if a.streams.endedRoutes == nil {
			a.streams.endedRoutes = map[[3]int]Pair{}
		}
		a.streams.endedRoutes[[3]int{p.FromStream, p.ToRank, p.ToStream}] = p
	}
	a.streams.ownStreams = slices.DeleteFunc(slices.Clone(a.streams.ownStreams), func(x *Assembly) bool { return x == s })
	a.publishStreams()
}

// publishStreams gives the engines the number of open streams. a.mu held.
func (a *Assembly) publishStreams() {
	var engines []*progress.Engine
	for _, s := range a.streams.ownStreams {
		if s.isOpen {
			engines = append(engines, s.env.Engine)
		}
	}
	a.nodeProcs.setStreams(engines)
}

// Streams returns the open streams, in the order of their numbers.
func (a *Assembly) Streams() (all []*Assembly) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.streams.ownStreams {
		if s.isOpen {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(x, y *Assembly) int { return x.streamNumber - y.streamNumber })
	return all
}

// routes returns the routes of a stack, that to itself first.
func (a *Assembly) routes() []Pair {
	all := []Pair{a.pair(a.env.Self)}
	for _, incarnation := range a.explainedPeers() {
		all = append(all, a.pair(incarnation))
	}
	return all
}

// streamPairs returns the routes of the streams of this process, those that have ended included if a report needs them.
func (a *Assembly) streamPairs() (all []Pair) {
	open := map[[3]int]bool{}
	for _, s := range a.Streams() {
		s.WhileOpen(func() {
			for _, p := range s.routes() {
				open[[3]int{p.FromStream, p.ToRank, p.ToStream}] = true
				all = append(all, p)
			}
		})
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for key, p := range a.streams.endedRoutes {
		if !open[key] {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(x, y Pair) int {
		return cmp.Or(cmp.Compare(x.FromStream, y.FromStream), cmp.Compare(x.ToRank, y.ToRank), cmp.Compare(x.ToStream, y.ToStream))
	})
	return all
}

// Stream returns the number of a stream, 0 for a process.
func (a *Assembly) Stream() int { return a.streamNumber }

// Nonce returns the nonce of the process.
func (a *Assembly) Nonce() uint64 {
	if a.ownerProcess != nil {
		return a.ownerProcess.env.Self.Nonce
	}
	return a.env.Self.Nonce
}

// passToStreams passes an event of the bootstrap on to the streams.
func (a *Assembly) passToStreams(ev bootstrap.Event) {
	switch ev.Kind {
	case bootstrap.Dump, bootstrap.NoteReceived: // The process's Watcher is notified.
		return
	case bootstrap.ServerLost: // See noter and isolate.
		return
	case bootstrap.PeerUnreachable: // It is about the stacks of two processes. See disconnectStream for those of streams.
		return
	}
	for _, s := range a.Streams() {
		s.event(ev)
	}
}

// isStream reports whether an incarnation is a stream of another process.
func (a *Assembly) isStream(incarnation framework.Incarnation) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.streams.peerStreams[incarnation.ID].streamNonce == incarnation.Nonce && incarnation.Nonce != 0
}

// streamsOf returns the incarnations of streams that an event about a process concerns, this stream among them.
func (a *Assembly) streamsOf(ev bootstrap.Event) (all []framework.Incarnation) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, s := range a.streams.peerStreams {
		of, _ := a.env.Worlds.Proc(id).Process()
		if of == ev.Proc && (ev.Nonce == 0 || ev.Nonce == s.processNonce) {
			all = append(all, framework.Incarnation{ID: id, Nonce: s.streamNonce})
		}
	}
	if a.ownerProcess != nil && ev.Proc == a.ownerProcess.env.Identity.Proc && (ev.Nonce == 0 || ev.Nonce == a.Nonce()) {
		all = append(all, a.env.Self)
	}
	return all
}

// inquire is pml.Module.Inquire for a process and its streams.
func (a *Assembly) inquire(m PML, by framework.Proc) {
	m.Inquire(a.env.Worlds.ID(by))
	for _, incarnation := range a.streamsOf(bootstrap.Event{Proc: by}) {
		m.Inquire(incarnation.ID)
	}
}

// processOf returns the process of an incarnation and its nonce. A stream that has ended has none.
func (a *Assembly) processOf(incarnation framework.Incarnation) (p framework.Proc, nonce uint64, ok bool) {
	p, number := a.env.Worlds.Proc(incarnation.ID).Process()
	switch {
	case incarnation == a.env.Self:
		return p, a.Nonce(), true
	case number == 0:
		return p, incarnation.Nonce, true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	peer := a.streams.peerStreams[incarnation.ID]
	return p, peer.processNonce, peer.streamNonce == incarnation.Nonce
}

// ProcessOf returns the incarnation of the process of a member, which may be a stream. The ID is that of this assembly.
func (a *Assembly) ProcessOf(incarnation framework.Incarnation) framework.Incarnation {
	p, nonce, ok := a.processOf(incarnation)
	if !ok {
		return incarnation
	}
	return framework.Incarnation{ID: a.env.Worlds.ID(p), Nonce: nonce}
}

// IsStream reports whether a member of a communicator is a stream.
func (a *Assembly) IsStream(incarnation framework.Incarnation) bool {
	if a.ownerProcess == nil && incarnation.ID.World() == 0 { // The usual case.
		return false
	}
	_, number := a.env.Worlds.Proc(incarnation.ID).Process()
	return number > 0
}

// A disconnected stream is a disconnect of its process with this beginning of the reason. The nonces are those of the sender's
// and of the receiver's stack.
const streamReason = "stream %x to %x: "

// disconnectStream notifies a peer that this stack has ended all exchange with it, if one of both is a stream.
func (a *Assembly) disconnectStream(peer framework.Incarnation, why error) bool {
	if a.ownerProcess == nil && !a.IsStream(peer) {
		return false
	}
	proc, nonce, ok := a.processOf(peer)
	if events, has := framework.As[bootstrap.EventSource](a.client); ok && has {
		events.Disconnect(proc, nonce, fmt.Sprintf(streamReason, a.env.Self.Nonce, peer.Nonce)+why.Error())
	}
	return true
}

// streamDisconnect returns the nonces of the receiver's and of the sender's stack, if ev is a disconnect of a stream. It removes them
// from the reason.
func streamDisconnect(ev *bootstrap.Event) (to, from uint64, ok bool) {
	if ev.Kind != bootstrap.PeerUnreachable {
		return 0, 0, false
	}
	if n, err := fmt.Sscanf(ev.Reason, streamReason, &from, &to); n < 2 || err != nil {
		return 0, 0, false
	}
	ev.Reason = strings.TrimPrefix(ev.Reason, fmt.Sprintf(streamReason, from, to))
	return to, from, true
}

// streamDisconnected ends all exchange between a stack of this process and one of another.
func (a *Assembly) streamDisconnected(ev bootstrap.Event, to, from uint64) {
	for _, s := range append(a.Streams(), a) {
		if s.env.Self.Nonce == to {
			s.peerDisconnected(ev, from)
		}
	}
}

func (a *Assembly) peerDisconnected(ev bootstrap.Event, nonce uint64) {
	a.upcalls.Lock()
	defer a.upcalls.Unlock()
	a.mu.Lock()
	id, ok := a.peers.owner(nonce)
	a.mu.Unlock()
	incarnation := framework.Incarnation{ID: id, Nonce: nonce}
	if !ok || a.upcalls.isClosing {
		return
	}
	if of, _, known := a.processOf(incarnation); !known || of != ev.Proc { // It is a stream of another process.
		return
	}
	a.env.Logger.Info("a process has disconnected a stream", "proc", a.env.Worlds.Proc(id).String(), "reason", ev.Reason)
	a.peerEnded(ev.PeerEvent(incarnation))
}
