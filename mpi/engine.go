package mpi

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/components"
	"github.com/ferrympi/ferry/components/core"
	"github.com/ferrympi/ferry/config"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/progress"
)

// shared is the process's engine while sessions are open.
var shared struct {
	mu       sync.Mutex
	engine   *engine
	sessions int
}

// acquire returns the engine, which it makes for the first session, and the
// values of all parameters for this session. A first session that fails leaves
// nothing: the next one tries again.
func acquire(ctx context.Context, o *sessionOptions) (*engine, *framework.Values, error) {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if e := shared.engine; e != nil {
		values, err := e.join(o)
		if err != nil {
			return nil, nil, err
		}
		shared.sessions++
		return e, values, nil
	}
	e := &engine{given: o.client, source: o.registry, log: o.logger, hooks: o.hooks, began: now(stepOpen)}
	if err := e.open(ctx, o.explicit); err != nil {
		return nil, nil, errors.Join(err, e.close())
	}
	shared.engine, shared.sessions = e, 1
	return e, e.values, nil
}

// release gives a session's share back; the last one frees the engine, after
// it has waited for accepted sends for at most linger. A session that is opened
// meanwhile waits for that.
func release(e *engine, linger time.Duration) error {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	shared.sessions--
	if shared.sessions > 0 {
		return nil
	}
	shared.engine = nil
	return errors.Join(e.drain(linger), e.close())
}

// engine is what all sessions of a process share: bootstrap, transports,
// protocols and progress. Its fields do not change while sessions are open,
// except for what mu guards.
type engine struct {
	given    bootstrap.Client    // WithBootstrap's, or nil
	source   *framework.Registry // WithRegistry's, or nil
	hooks    pml.Hooks           // WithHooks's, or nil
	registry *framework.Registry
	values   *framework.Values // of the first session; the process scope is everybody's
	log      *slog.Logger
	timeout  time.Duration
	reports  []string
	began    timeMark
	timing   *timing // or nil

	selections map[framework.Kind]*framework.Selection
	colls      []framework.Choice
	client     bootstrap.Client
	identity   bootstrap.Identity
	worlds     *framework.Worlds
	me         framework.ProcID
	nonce      uint64
	progress   *progress.Engine
	btls       []btl.Module
	mtls       []mtl.Module
	modules    []module   // by preference
	node       pml.Module // to which another one leaves the processes of a node, or nil
	offers     []byte     // of all modules, as they travel
	cards      []byte     // likewise
	nulls      *nullOwner
	bases      bases
	registered registered

	mu    sync.Mutex
	known map[framework.ProcID]string // cards that the modules have learnt
	noted map[framework.ProcID]Pair   // see note
	comms map[cid.Extended]*Comm      // that are open
	dead  map[framework.ProcID]string // processes that have failed, and how

	constructs struct {
		last    uint64
		waiting map[uint64]string // constructs in progress, for Inspect
	}

	upcall  sync.Mutex // held by event and, briefly, by close
	closing bool       // no more upcalls
}

// module is an open PML.
type module struct {
	name string
	pml.Module
}

// open does the local half of MPI_Init: nothing leaves the process, but for the
// greeting of its launcher.
func (e *engine) open(ctx context.Context, explicit []framework.Setting) error {
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	if e.source != nil {
		e.registry = e.source.Clone()
	} else {
		e.registry = components.Standard()
	}
	core.Register(e.registry)
	var err error
	if e.values, err = config.Load(e.registry, config.Options{Explicit: explicit, Tuned: e.tuned}); err != nil {
		return err
	}
	var boot core.Bootstrap
	var report core.Session
	var waiting core.Progress
	if err := errors.Join(e.values.Decode("bootstrap", &boot), e.values.Decode("session", &report), e.values.Decode("progress", &waiting)); err != nil {
		return err
	}
	e.timeout, e.reports = boot.Timeout, report.Report
	if slices.Contains(e.reports, reportTiming) {
		e.timing = newTiming(e.began)
	}
	e.timing.mark(stepConfiguration)
	if e.selections, err = e.registry.SelectAll(ctx, e.values); err != nil {
		return err
	}
	e.timing.probes(e.selections)
	e.timing.mark(stepSelection)
	e.colls = e.selections[framework.Coll].Chosen
	if err := e.openBootstrap(ctx); err != nil {
		return err
	}
	e.timing.mark(stepBootstrap)
	e.identity = e.client.Identity()
	e.worlds = framework.NewWorlds(e.identity.Proc.Namespace)
	e.me = e.worlds.ID(e.identity.Proc)
	e.known, e.noted = map[framework.ProcID]string{}, map[framework.ProcID]Pair{}
	e.comms, e.dead = map[cid.Extended]*Comm{}, map[framework.ProcID]string{}
	e.constructs.waiting = map[uint64]string{}
	e.bases.init()
	var b [8]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	e.nonce = binary.NativeEndian.Uint64(b[:]) | 1

	opt, err := waiting.Options(e.identity.LocalSize)
	if err != nil {
		return err
	}
	e.progress = progress.New(opt)
	e.nulls = newNullOwner(e.progress)
	if err := e.openModules(ctx); err != nil {
		return err
	}
	e.timing.mark(stepModules)
	if events, ok := framework.As[bootstrap.EventSource](e.client); ok {
		events.OnEvent(e.event)
	}
	e.timing.mark(stepSession)
	return nil
}

// tuned is told what became of the result of `ferry tune`.
func (e *engine) tuned(t config.Tuned) {
	if t.Err != nil {
		e.log.Warn("what was measured here is not used", "err", t.Err)
	}
}

// openBootstrap opens the first bootstrap of the selection. Another one is no
// substitute if that fails: a program that was started under a launcher must not
// become N singletons.
func (e *engine) openBootstrap(ctx context.Context) error {
	if e.given != nil {
		e.client = e.given
		return nil
	}
	selection := e.selections[framework.Bootstrap]
	choice, err := selection.One()
	if err != nil {
		return err
	}
	component, ok := choice.Component.(bootstrap.Component)
	if !ok {
		return wrongContract(choice)
	}
	c, err := component.Open(ctx, bootstrap.Env{Params: choice.Params, Logger: e.log, Timeout: e.timeout})
	if err != nil {
		return err // whatever c is
	}
	e.client = c
	return nil
}

func wrongContract(c framework.Choice) error {
	return fmt.Errorf("%w: component %s %s (%T) does not implement its framework's contract", ErrConfig, c.Verdict.Kind, c.Verdict.Name, c.Component)
}

// openModules opens every PML that selection allows: the first is what this
// process prefers, and the others are offers to peers that lack it.
func (e *engine) openModules(ctx context.Context) error {
	selection := e.selections[framework.PML]
	for _, choice := range slices.Clone(selection.Chosen) {
		before, beforeMTL, node := len(e.btls), len(e.mtls), e.node
		var m pml.Module
		var err error
		if choice.Verdict.Name == nodePML && node != nil { // another one has opened it
			m = node
		} else {
			m, err = e.openPML(ctx, choice)
		}
		if err == nil {
			e.modules = append(e.modules, module{choice.Verdict.Name, m})
			continue
		}
		e.log.Warn("pml failed to open", "pml", choice.Verdict.Name, "err", err)
		if e.node != node {
			err = errors.Join(err, e.closeNode())
		}
		err = errors.Join(err, e.closeMTLs(beforeMTL), e.closeBTLs(before))
		if bound := selection.Fail(choice.Verdict.Name, err); bound != nil {
			return bound
		}
	}
	if _, err := selection.One(); err != nil {
		return err
	}
	var err error
	e.offers, e.cards, err = encodeCards(e.modules)
	return err
}

func (e *engine) openPML(ctx context.Context, choice framework.Choice) (pml.Module, error) {
	component, ok := choice.Component.(pml.Component)
	if !ok {
		return nil, wrongContract(choice)
	}
	defer e.timing.opened(framework.PML, choice.Verdict.Name, time.Now())
	return component.Open(ctx, pml.Env{
		Params: choice.Params, Identity: e.identity, Worlds: e.worlds, Nonce: e.nonce,
		Engine: e.progress, Logger: e.log, Hooks: e.timing.watch(e.hooks),
		OpenBTLs:   func(r btl.Receiver) ([]pml.OpenBTL, error) { return e.openBTLs(ctx, r) },
		FailedBTLs: e.failedBTLs,
		OpenMTL:    func(r mtl.Receiver) (pml.OpenMTL, error) { return e.openMTL(ctx, r) },
		OpenNode:   func() (pml.Module, error) { return e.openNode(ctx) },
	})
}

// failedBTLs returns the BTLs that did not open. The selection does not change
// any more once modules are in use.
func (e *engine) failedBTLs() []pml.Rejection {
	var failed []pml.Rejection
	for _, v := range e.selections[framework.BTL].Verdicts {
		if v.Status == framework.StatusFailed {
			failed = append(failed, pml.Rejection{Name: v.Name, Reason: v.Reason})
		}
	}
	return failed
}

// openBTLs opens the selected BTLs for one PML.
func (e *engine) openBTLs(ctx context.Context, r btl.Receiver) ([]pml.OpenBTL, error) {
	selection := e.selections[framework.BTL]
	var open []pml.OpenBTL
	for _, choice := range slices.Clone(selection.Chosen) {
		m, err := e.openBTL(ctx, choice, r)
		if err != nil {
			e.log.Warn("btl failed to open", "btl", choice.Verdict.Name, "err", err)
			if bound := selection.Fail(choice.Verdict.Name, err); bound != nil {
				return nil, bound
			}
			continue
		}
		e.btls = append(e.btls, m)
		e.progress.Add(m)
		open = append(open, pml.OpenBTL{Name: choice.Verdict.Name, Module: m})
	}
	return open, selection.Empty()
}

func (e *engine) openBTL(ctx context.Context, choice framework.Choice, r btl.Receiver) (btl.Module, error) {
	component, ok := choice.Component.(btl.Component)
	if !ok {
		return nil, wrongContract(choice)
	}
	defer e.timing.opened(framework.BTL, choice.Verdict.Name, time.Now())
	return component.Open(ctx, btl.Env{
		Params: choice.Params, Identity: e.identity, Worlds: e.worlds, Nonce: e.nonce,
		Engine: e.progress, Upcall: r, Logger: e.log,
	})
}

// join checks a later session's options against the engine, and returns its
// values. What the process shares is the first session's; a later session may
// only repeat it.
func (e *engine) join(o *sessionOptions) (*framework.Values, error) {
	if o.registry != nil && o.registry != e.source {
		return nil, fmt.Errorf("%w: WithRegistry: another session is open with another registry; close it first", ErrConfig)
	}
	if o.client != nil && !same(o.client, e.given) {
		return nil, fmt.Errorf("%w: WithBootstrap: another session is open with another bootstrap; close it first", ErrConfig)
	}
	if o.hooks != nil && !same(o.hooks, e.hooks) {
		return nil, fmt.Errorf("%w: WithHooks: another session is open with other hooks; close it first", ErrConfig)
	}
	values, err := config.Load(e.registry, config.Options{Explicit: o.explicit})
	if err != nil {
		return nil, err
	}
	for _, name := range values.Diff(e.values, framework.ScopeProcess) {
		for _, set := range o.explicit {
			if set.Name != name {
				continue
			}
			mine, _ := values.Get(name)
			theirs, _ := e.values.Get(name)
			spec, _ := values.Spec(name)
			return nil, fmt.Errorf("%w: parameter %s has process scope: an open session has %q (%s), and this one asks for %q (%s)",
				ErrConfig, name, spec.Redact(theirs.Text), theirs.Source, spec.Redact(mine.Text), mine.Source)
		}
	}
	return values, nil
}

// same reports whether two values are the same one. What can't be compared, such
// as a function, is not.
func same(a, b any) bool {
	return a == nil && b == nil || a != nil && b != nil && reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

// bound limits a step of the wire-up. A client that this engine opened knows
// the limit already, and names who is missing when it passes.
func (e *engine) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx = background(ctx)
	if e.given == nil {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, e.timeout)
}

// event is the client's upcall: it must not block.
func (e *engine) event(ev bootstrap.Event) {
	e.upcall.Lock()
	defer e.upcall.Unlock()
	if e.closing {
		return
	}
	switch ev.Kind {
	case bootstrap.ProcDied:
		e.log.Warn("process died", "proc", ev.Proc.String(), "reason", ev.Reason)
		e.died(e.worlds.ID(ev.Proc), ev.Reason)
	case bootstrap.ServerLost:
		// Constructs fail by themselves; messages need no server.
		e.log.Warn("the launcher is gone", "reason", ev.Reason)
	case bootstrap.Dump:
		e.dump()
	}
}

// died ends what waits for a process that is gone. A collective waits for it
// also where its partner is alive, and has given up itself: so all collectives
// end that have it as a member.
func (e *engine) died(id framework.ProcID, reason string) {
	e.mu.Lock()
	e.dead[id] = reason // first: a communicator that is made from now on knows
	comms := slices.Collect(maps.Values(e.comms))
	e.mu.Unlock()
	for _, m := range e.modules {
		m.PeerFailed(id, reason)
	}
	for _, c := range comms {
		c.memberDied(id, reason)
	}
}

// drain sends reports and waits for accepted sends.
func (e *engine) drain(linger time.Duration) error {
	e.timing.mark(stepClose)
	var errs []error
	ctx, cancel := context.WithTimeout(context.Background(), linger)
	defer cancel()
	for _, m := range e.modules {
		if err := m.Flush(ctx); err != nil {
			errs = append(errs, ended(ctx, fmt.Sprintf("close session: pml %s has sends that did not leave within session.linger=%v", m.name, linger), err))
		}
	}
	return errors.Join(append(errs, e.report())...)
}

// close frees what open has made, also half of it.
func (e *engine) close() error {
	var errs []error
	if events, ok := framework.As[bootstrap.EventSource](e.client); ok {
		events.OnEvent(nil)
	}
	e.upcall.Lock() // an upcall may still be under way
	e.closing = true
	e.upcall.Unlock()
	for _, m := range e.btls {
		e.progress.Remove(m)
	}
	for _, m := range e.mtls {
		e.progress.Remove(m)
	}
	for _, m := range e.upper() { // first those that use another one
		errs = append(errs, m.Close())
	}
	if e.node != nil {
		errs = append(errs, e.node.Close())
	}
	errs = append(errs, e.closeMTLs(0), e.closeBTLs(0))
	if e.progress != nil {
		e.progress.Close()
	}
	if e.client != nil && e.given == nil {
		errs = append(errs, e.client.Close())
	}
	return errors.Join(errs...)
}

// closeBTLs closes the BTLs from the given one on.
func (e *engine) closeBTLs(from int) error {
	var errs []error
	for _, m := range e.btls[from:] {
		e.progress.Remove(m) // does nothing if that was done
		errs = append(errs, m.Close())
	}
	e.btls = e.btls[:from]
	return errors.Join(errs...)
}

// queryColl asks the selected components what they offer on a communicator.
func (e *engine) queryColl(p coll.Peers) (*coll.Ops, error) {
	var best coll.Ops
	var of [5]int // priority of each operation's provider, plus one
	for _, choice := range e.colls {
		component, ok := choice.Component.(coll.Component)
		if !ok {
			return nil, wrongContract(choice)
		}
		o := component.Query(choice.Params, p)
		if o == nil {
			continue
		}
		take(&best.Barrier, o.Barrier, o.Barrier != nil, &of[0], o.Priority)
		take(&best.Bcast, o.Bcast, o.Bcast != nil, &of[1], o.Priority)
		take(&best.Reduce, o.Reduce, o.Reduce != nil, &of[2], o.Priority)
		take(&best.Allreduce, o.Allreduce, o.Allreduce != nil, &of[3], o.Priority)
		take(&best.Allgather, o.Allgather, o.Allgather != nil, &of[4], o.Priority)
	}
	return &best, nil
}

// take prefers the higher priority, and among equals what selection put first.
func take[F any](best *F, offer F, offered bool, have *int, priority int) {
	if offered && (*have == 0 || priority+1 > *have) {
		*best, *have = offer, priority+1
	}
}
