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

// The environment of a storm's ranks: what storm it is, how long an operation may take,
// and the directory where a fault says when it came.
const (
	envStorm     = "SOAK_STORM"
	envStormWait = "SOAK_STORM_WAIT"
	envStormDir  = "SOAK_STORM_DIR"
)

// storyMark begins the line that has a rank's story.
const storyMark = "STORY "

// player is one rank of a storm.
type player struct {
	teller
	me      int
	wait    time.Duration
	session *mpi.Session
	comms   []*mpi.Comm // of the streams
	coll    *mpi.Comm
	sent    map[int]*ledger
	got     map[int]*ledger
	steps   atomic.Int64
	struck  sync.Once

	all  context.Context // ends when something hangs
	life context.Context // ends when the rank closes early, too
	end  context.CancelCauseFunc

	mu     sync.Mutex
	left   []*sending     // sends that the rank's own close leaves, and what nobody receives
	posted []mpi.Request  // receives likewise
	claims []*mpi.Message // that are never received
	calls  map[*call]bool // that are under way
}

// call is an operation under way.
type call struct {
	what  string
	since int64
}

// stormRank is the program.
func stormRank(ctx context.Context) error {
	p := &player{calls: map[*call]bool{}, sent: map[int]*ledger{}, got: map[int]*ledger{}}
	p.storm = parseStorm(os.Getenv(envStorm))
	fmt.Sscan(os.Getenv("FERRY_BOOTSTRAP_LOCAL_RANK"), &p.me)
	p.Rank = p.me
	p.Peers = make([]chapter, p.storm.ranks)
	p.Bye = map[int]string{}
	p.wait, _ = time.ParseDuration(os.Getenv(envStormWait))
	for i := range p.storm.streams {
		if st := &p.storm.streams[i]; st.from == p.me {
			p.sent[i] = newLedger(len(st.messages))
		} else if st.to == p.me {
			p.got[i] = newLedger(len(st.messages))
		}
	}
	p.all, p.stop = context.WithCancelCause(ctx)
	defer p.stop(nil)
	p.life, p.end = context.WithCancelCause(p.all)
	defer p.end(nil)
	start := time.Now()
	watched := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() { p.watch(watched) })
	p.play(p.all)
	close(watched)
	watcher.Wait()
	p.Took = time.Since(start)
	p.tell()
	if len(p.Hangs) > 0 {
		os.Exit(0) // goroutines may be left
	}
	return nil
}

// tell prints the story.
func (p *player) tell() {
	p.teller.mu.Lock()
	defer p.teller.mu.Unlock()
	p.Sent, p.Got = map[int]string{}, map[int]string{}
	for i, l := range p.sent {
		p.Sent[i] = l.String()
	}
	for i, l := range p.got {
		p.Got[i] = l.String()
	}
	b, err := json.Marshal(p.story)
	if err != nil {
		panic(err)
	}
	fmt.Printf("\n%s%s\n", storyMark, b)
}

// watch ends the process when a call hangs although its context has ended.
func (p *player) watch(done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case <-time.After(200 * time.Millisecond):
		}
		p.mu.Lock()
		var over []*call
		for c := range p.calls {
			if time.Duration(now()-c.since) > p.wait+3*time.Second {
				over = append(over, c)
			}
		}
		p.mu.Unlock()
		if over == nil {
			continue
		}
		for _, c := range over {
			p.hangs(c.what+" (beyond its context)", c.since)
		}
		p.dump()
		p.tell()
		os.Exit(0)
	}
}

// dump says what waits, and where.
func (p *player) dump() {
	for i, c := range append(p.comms[:len(p.comms):len(p.comms)], p.coll) {
		if c == nil {
			continue
		}
		in, err := c.Inspect()
		fmt.Printf("communicator %d: %+v, %v\n", i, in, err)
	}
	_ = pprof.Lookup("goroutine").WriteTo(os.Stdout, 1)
}

// under runs f with a context, as a call that may not hang.
func (p *player) under(life context.Context, what string, f func(context.Context) error) error {
	c := &call{what, now()}
	p.mu.Lock()
	p.calls[c] = true
	p.mu.Unlock()
	ctx, cancel := patience(life, p.wait)
	defer cancel()
	err := f(ctx)
	if errors.Is(err, errHung) {
		p.hangs(what, c.since)
	}
	p.mu.Lock()
	delete(p.calls, c)
	p.mu.Unlock()
	return err
}

// step counts a step of this rank, and reports whether it goes on. The fault comes
// before one.
func (p *player) step() bool {
	if n := int(p.steps.Add(1)) - 1; n == p.storm.faultStep(p.me) && p.storm.faulty(p.me) && !p.storm.fault.early {
		p.strike()
	}
	return p.life.Err() == nil
}

// play does all.
func (p *player) play(ctx context.Context) {
	if p.storm.fault.early && p.storm.faulty(p.me) {
		p.strike()
	}
	if p.Opened = p.open(ctx); p.Opened != "" {
		return
	}
	// Whoever leaves this barrier knows that all have left the one before, which they needed.
	met := p.under(ctx, "second barrier", func(ctx context.Context) error { return mpi.Barrier(ctx, p.coll) })
	var streams sync.WaitGroup
	for i := range p.storm.streams {
		switch st := &p.storm.streams[i]; {
		case st.from == p.me:
			streams.Go(func() { (&sender{player: p, at: i, stream: st, ledger: p.sent[i]}).run() })
		case st.to == p.me && !st.wild:
			streams.Go(func() { (&receiver{player: p, at: i, stream: st, ledger: p.got[i]}).run() })
		}
	}
	for comm := range p.comms {
		streams.Go(func() { p.receiveWild(comm) })
	}
	streams.Go(func() { p.collectives(met) })
	streams.Wait()
	switch {
	case p.all.Err() != nil:
	case p.life.Err() != nil:
		p.closeEarly()
	default:
		p.finish(ctx)
	}
	if p.all.Err() != nil {
		p.dump()
	}
}

// open makes session and communicators; a text says why not.
func (p *player) open(ctx context.Context) string {
	failed := func(what string, err error) string {
		return fmt.Sprintf("%s: %c: %v", what, p.classify(err, what, nil), err)
	}
	err := p.under(ctx, "open session", func(ctx context.Context) (err error) {
		p.session, err = mpi.OpenSession(ctx)
		return err
	})
	if err != nil {
		return failed("open session", err)
	}
	for range 20 { // bootstrap.timeout is short where a launcher is lost, and ranks start slowly at times
		err = p.under(ctx, "communicator from group", func(ctx context.Context) error {
			c, err := world(ctx, p.session, "storm")
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
	err = p.under(ctx, "first barrier", func(ctx context.Context) (err error) {
		for range p.storm.comms - 1 {
			d, err := c.Dup(ctx)
			if err != nil {
				return err
			}
			p.comms = append(p.comms, d)
		}
		if p.coll, err = c.Dup(ctx); err != nil {
			return err
		}
		return mpi.Barrier(ctx, p.coll)
	})
	if err != nil {
		text := failed("first barrier", err)
		p.closeAll()
		return text
	}
	return ""
}

// closeAll closes the communicators and the session, in good order.
func (p *player) closeAll() {
	var errs []error
	for _, c := range append(p.comms[:len(p.comms):len(p.comms)], p.coll) {
		if c != nil {
			errs = append(errs, c.Close())
		}
	}
	p.step()
	if !p.storm.faulty(p.me) || p.storm.kind == "cut" || p.storm.kind == "shortage" { // else their receivers wait for its end
		p.settleStrays()
	}
	errs = append(errs, p.under(context.Background(), "close session", func(context.Context) error { return p.session.Close() }))
	if err := errors.Join(errs...); err != nil {
		p.Closed = err.Error()
	}
}

// moment writes down when a fault comes.
func (p *player) moment() {
	p.Fault = now()
	name := filepath.Join(os.Getenv(envStormDir), fmt.Sprint("fault-", p.me))
	_ = os.WriteFile(name, fmt.Append(nil, p.Fault), 0o600)
}

// storyOf finds the story in what a rank has written.
func storyOf(out string) *story {
	_, line, ok := strings.Cut(out, "\n"+storyMark)
	if !ok {
		return nil
	}
	line, _, _ = strings.Cut(line, "\n")
	s := new(story)
	if json.Unmarshal([]byte(line), s) != nil {
		return nil
	}
	return s
}
