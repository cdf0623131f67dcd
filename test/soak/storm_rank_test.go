package soak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ferrympi/ferry/mpi"
)

// Environment of a storm's ranks. It has the storm, the timeout of an operation, and the directory
// for the time of a fault.
const (
	envStorm     = "SOAK_STORM"
	envStormWait = "SOAK_STORM_WAIT"
	envStormDir  = "SOAK_STORM_DIR"
)

// reportPrefix is the prefix of the line with the report of a rank.
const reportPrefix = "STORY "

// stormPlayer is one rank of a storm.
type stormPlayer struct {
	recorder
	me          int
	callTimeout time.Duration
	session     *mpi.Session
	// Communicators of the streams.
	comms     []*mpi.Comm
	collComm  *mpi.Comm
	sent      map[int]*streamOutcomes
	received  map[int]*streamOutcomes
	steps     atomic.Int64
	faultOnce sync.Once

	// Ends after a hang.
	untilHang context.Context
	// Ends when the rank closes early, too.
	untilClose     context.Context
	endIncarnation context.CancelCauseFunc

	mu sync.Mutex
	// Pending sends at the rank's close, and unreceived messages.
	leftSends []*startedSend
	// Pending receives at the rank's close.
	leftRecvs []mpi.Request
	// Matched messages that are never received.
	claimedMessages []*mpi.Message
	// Pending calls.
	pendingCalls map[*pendingCall]bool
}

// pendingCall is a pending operation.
type pendingCall struct {
	what  string
	since int64
}

// stormRank is the program of a rank.
func stormRank(ctx context.Context) error {
	p := &stormPlayer{pendingCalls: map[*pendingCall]bool{}, sent: map[int]*streamOutcomes{}, received: map[int]*streamOutcomes{}}
	p.storm = parseStorm(os.Getenv(envStorm))
	fmt.Sscan(os.Getenv("FERRY_BOOTSTRAP_LOCAL_RANK"), &p.me)
	p.Rank = p.me
	p.Peers = make([]outcome, p.storm.ranks)
	p.Farewell = map[int]string{}
	p.callTimeout, _ = time.ParseDuration(os.Getenv(envStormWait))
	for i := range p.storm.streams {
		if st := &p.storm.streams[i]; st.from == p.me {
			p.sent[i] = newStreamOutcomes(len(st.messages))
		} else if st.to == p.me {
			p.received[i] = newStreamOutcomes(len(st.messages))
		}
	}
	p.untilHang, p.cancelAll = context.WithCancelCause(ctx)
	defer p.cancelAll(nil)
	p.untilClose, p.endIncarnation = context.WithCancelCause(p.untilHang)
	defer p.endIncarnation(nil)
	start := time.Now()
	watched := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() { p.watch(watched) })
	p.runProgram(p.untilHang)
	close(watched)
	watcher.Wait()
	p.Elapsed = time.Since(start)
	p.printReport()
	if len(p.Hangs) > 0 {
		os.Exit(0) // Goroutines may remain.
	}
	return nil
}

// printReport prints the report.
func (p *stormPlayer) printReport() {
	p.recorder.mu.Lock()
	defer p.recorder.mu.Unlock()
	p.Sent, p.Received = map[int]string{}, map[int]string{}
	for i, l := range p.sent {
		p.Sent[i] = l.String()
	}
	for i, l := range p.received {
		p.Received[i] = l.String()
	}
	b, err := json.Marshal(p.rankReport)
	if err != nil {
		panic(err)
	}
	fmt.Printf("\n%s%s\n", reportPrefix, b)
}

// watch ends the process when a call hangs although its context has ended.
func (p *stormPlayer) watch(done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case <-time.After(200 * time.Millisecond):
		}
		p.mu.Lock()
		var over []*pendingCall
		for c := range p.pendingCalls {
			if time.Duration(monotonicNow()-c.since) > p.callTimeout+3*time.Second {
				over = append(over, c)
			}
		}
		p.mu.Unlock()
		if over == nil {
			continue
		}
		for _, c := range over {
			p.recordHang(c.what+" (beyond its context)", c.since)
		}
		p.dump()
		p.printReport()
		os.Exit(0)
	}
}

// dump prints the state of pending operations.
func (p *stormPlayer) dump() {
	for i, c := range append(p.comms[:len(p.comms):len(p.comms)], p.collComm) {
		if c == nil {
			continue
		}
		in, err := c.Inspect()
		fmt.Printf("communicator %d: %+v, %v\n", i, in, err)
	}
	_ = pprof.Lookup("goroutine").WriteTo(os.Stdout, 1)
}

// guarded runs f with a context, as a call that must not hang.
func (p *stormPlayer) guarded(incarnation context.Context, what string, f func(context.Context) error) error {
	c := &pendingCall{what, monotonicNow()}
	p.mu.Lock()
	p.pendingCalls[c] = true
	p.mu.Unlock()
	ctx, cancel := withPatience(incarnation, p.callTimeout)
	defer cancel()
	err := f(ctx)
	if errors.Is(err, errHung) {
		p.recordHang(what, c.since)
	}
	p.mu.Lock()
	delete(p.pendingCalls, c)
	p.mu.Unlock()
	return err
}

// step counts a step of this rank, and reports whether the rank continues. The fault occurs before
// a step.
func (p *stormPlayer) step() bool {
	if n := int(p.steps.Add(1)) - 1; n == p.storm.faultStep(p.me) && p.storm.isFaulty(p.me) && !p.storm.fault.fromStart {
		p.injectFault()
	}
	return p.untilClose.Err() == nil
}

// runProgram runs the whole program of the rank.
func (p *stormPlayer) runProgram(ctx context.Context) {
	if p.storm.fault.fromStart && p.storm.isFaulty(p.me) {
		p.injectFault()
	}
	if p.OpenError = p.open(ctx); p.OpenError != "" {
		return
	}
	// After this barrier, all ranks have left the previous one, which needed them.
	met := p.guarded(ctx, "second barrier", func(ctx context.Context) error { return mpi.Barrier(ctx, p.collComm) })
	var streams sync.WaitGroup
	for i := range p.storm.streams {
		switch st := &p.storm.streams[i]; {
		case st.from == p.me:
			streams.Go(func() { (&sender{stormPlayer: p, at: i, stream: st, outcomes: p.sent[i]}).run() })
		case st.to == p.me && !st.isAnySource:
			streams.Go(func() { (&receiver{stormPlayer: p, at: i, stream: st, outcomes: p.received[i]}).run() })
		}
	}
	for comm := range p.comms {
		streams.Go(func() { p.receiveWild(comm) })
	}
	streams.Go(func() { p.collectives(met) })
	streams.Wait()
	switch {
	case p.untilHang.Err() != nil:
	case p.untilClose.Err() != nil:
		p.closeEarly()
	default:
		p.endRank(ctx)
	}
	if p.untilHang.Err() != nil {
		p.dump()
	}
}

// open creates the session and communicators. It returns the reason if that fails.
func (p *stormPlayer) open(ctx context.Context) string {
	failed := func(what string, err error) string {
		return fmt.Sprintf("%s: %c: %v", what, p.classify(err, what, nil), err)
	}
	err := p.guarded(ctx, "open session", func(ctx context.Context) (err error) {
		p.session, err = mpi.OpenSession(ctx)
		return err
	})
	if err != nil {
		return failed("open session", err)
	}
	for range 20 { // bootstrap.timeout is short in storms without a launcher, and ranks may start slowly.
		err = p.guarded(ctx, "communicator from group", func(ctx context.Context) error {
			c, err := newWorldComm(ctx, p.session, "storm")
			if err == nil {
				p.comms = append(p.comms, c)
			}
			return err
		})
		var missing *mpi.MissingError
		if !errors.As(err, &missing) || len(missing.Failed) > 0 {
			break
		}
	}
	if err != nil {
		p.session.Close()
		return failed("communicator from group", err)
	}
	c := p.comms[0]
	err = p.guarded(ctx, "first barrier", func(ctx context.Context) (err error) {
		for range p.storm.comms - 1 {
			d, err := c.Dup(ctx)
			if err != nil {
				return err
			}
			p.comms = append(p.comms, d)
		}
		if p.collComm, err = c.Dup(ctx); err != nil {
			return err
		}
		return mpi.Barrier(ctx, p.collComm)
	})
	if err != nil {
		text := failed("first barrier", err)
		p.closeAll()
		return text
	}
	return ""
}

// closeAll closes the communicators and the session.
func (p *stormPlayer) closeAll() {
	var errs []error
	for _, c := range append(p.comms[:len(p.comms):len(p.comms)], p.collComm) {
		if c != nil {
			errs = append(errs, c.Close())
		}
	}
	p.step()
	if !p.storm.isFaulty(p.me) || p.storm.kind == "cut" || p.storm.kind == "shortage" { // Otherwise their receivers wait for its end.
		p.settleStrays()
	}
	errs = append(errs, p.guarded(context.Background(), "close session", func(context.Context) error { return p.session.Close() }))
	if err := errors.Join(errs...); err != nil {
		p.CloseError = err.Error()
	}
}

// recordFaultTime records the time of a fault.
func (p *stormPlayer) recordFaultTime() {
	p.FaultAt = monotonicNow()
	name := filepath.Join(os.Getenv(envStormDir), fmt.Sprint("fault-", p.me))
	_ = os.WriteFile(name, fmt.Append(nil, p.FaultAt), 0o600)
}

// reportIn returns the report in the output of a rank.
func reportIn(out string) *rankReport {
	_, line, ok := strings.Cut(out, "\n"+reportPrefix)
	if !ok {
		return nil
	}
	line, _, _ = strings.Cut(line, "\n")
	s := new(rankReport)
	if json.Unmarshal([]byte(line), s) != nil {
		return nil
	}
	return s
}
