// Package assembly puts a process together from components: it reads the
// configuration, selects, connects with the launcher, opens the modules of every
// framework, exchanges business cards with others, says why it is as it is, and
// takes it all down again.
//
// An Assembly is a value, and knows of no other: several may live in one
// operating-system process, each a process of its job. Package mpi is its user, and
// shares one among the sessions of a process. A Stack is the part without
// configuration and launcher, which the kits use too.
package assembly

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/components"
	"github.com/ferrympi/ferry/components/core"
	"github.com/ferrympi/ferry/config"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/limits"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/threads"
	"github.com/ferrympi/ferry/progress"
)

// Options says what to assemble. The zero value is a process with the standard
// components, as the configuration wants it.
type Options struct {
	// Registry replaces components.Standard, if it is not nil. It isn't changed.
	Registry *framework.Registry
	// Client, if not nil, is used in place of the bootstrap that would be selected,
	// and stays the caller's.
	Client bootstrap.Client
	// Settings are the program's, which win over all others.
	Settings []framework.Setting
	Logger   *slog.Logger // nil: as the parameter log says
	Hooks    pml.Hooks    // nil when nobody looks
	Watcher  Watcher      // nil when nobody looks
}

// A Watcher hears what happens to the job. No call comes after Close.
type Watcher interface {
	// Died reports that a process has failed. All PMLs have been notified. Calls come one at a
	// time. The bootstrap may report this process itself. Then Gone follows for all others.
	Died(peer framework.Life, reason string)
	// Gone says that nothing more is exchanged with a process, because it has closed its
	// session, or because this one is cut off. All PMLs have been told. Calls come one at a
	// time, Died's among them.
	Gone(peer framework.Life, why error)
	// Broken says that a process takes part in no further collective of a communicator, and
	// why, though none has failed. Calls come one at a time, Died's among them.
	Broken(comm cid.Extended, by framework.Proc, reason string)
	// Revoked reports that another process has revoked a communicator. Calls come one at a time,
	// Died's among them.
	Revoked(comm cid.Extended, by framework.Proc)
	// Noted passes on a note of a process. Calls come one at a time, Died's among them.
	Noted(from framework.Life, body string)
	// Dump says that somebody wants to see what the process waits for. It may come while
	// another call is under way, whose end it must not wait for.
	Dump(how string)
}

// Assembly is one process of a job. Its methods may be called concurrently.
type Assembly struct {
	*Stack
	streamOf     // Zero in the assembly of a process.
	options      Options
	log          *sink // nil where the program brings a logger
	boot         core.Bootstrap
	reports      []string
	isExplaining bool // Parameter explain.
	threads      threads.Params
	client       bootstrap.Client
	offers       []byte // of all PMLs, as they travel
	// decodedOffers are the same, decoded.
	decodedOffers []pml.Offer
	card          card // likewise; see present

	closing    sync.Once
	readers    sync.RWMutex // See WhileOpen.
	isFreed    bool         // Whether the transports are closed or closing. Guarded by readers.
	closed     error        // of Close
	learning   sync.Mutex   // held while PMLs learn a card, before mu
	presenting sync.Mutex   // guards card

	mu       sync.Mutex
	known    acquaintances
	here     nodeProcs
	noted    map[framework.Life]Pair // see note
	tables   map[int]tableNote       // by number of members; see NoteCollectives
	dead     deaths
	left     map[framework.Life]struct{} // See Left.
	streams  streams
	refused  []cid.Span // See HasRefused.
	past     past
	leftOut  map[string]leftOut // coll components; see LeftOut
	isolated error              // why nothing is exchanged with any other process; see isolate

	wireUps wireUps

	constructs struct {
		last    uint64
		waiting map[uint64]string                  // in progress, for Constructs
		cancel  map[uint64]context.CancelCauseFunc // Of those with other processes.
	}

	upcalls struct {
		sync.Mutex
		closing bool
		// isIsolated reports that the isolation of this process is in the queue, or was delivered.
		isIsolated bool
		stop       chan struct{} // closed with closing
		lost       error         // Why no notes are sent, once the launcher is gone.
		news       []news        // of which nobody has been told yet
		notes      int           // Number of notes in the queue.
		telling    bool
		dumping    bool
		running    sync.WaitGroup
	}
}

// card is the process's own business card.
type card struct {
	bytes   []byte
	edition uint32
}

// Open does the local half of MPI_Init: nothing leaves the process, but for the
// greeting of its launcher. ErrConfig says what is wrong with the configuration, or
// that what was asked for by name is not to be had; ErrTransport that the launcher
// can't be reached. After an error nothing is left open.
func Open(ctx context.Context, o Options) (*Assembly, error) {
	a := &Assembly{
		Stack: new(Stack), options: o,
		known: newAcquaintances(), noted: map[framework.Life]Pair{},
	}
	a.constructs.waiting, a.constructs.cancel = map[uint64]string{}, map[uint64]context.CancelCauseFunc{}
	a.upcalls.stop = make(chan struct{})
	if err := a.open(ctx); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

// opening is what opening takes at least: descriptors for the runtime's poller and a file,
// and a thread for the engine's progress goroutine.
var opening = limits.Need{Files: 3, Threads: 1, Space: 16 << 20}

func (a *Assembly) open(ctx context.Context) error {
	began := now(stepOpen)
	if err := opening.Check(); err != nil {
		return fmt.Errorf("%w: this process can't do more: %w", framework.ErrUnsupported, err)
	}
	if a.options.Registry != nil {
		a.registry = a.options.Registry.Clone()
	} else {
		a.registry = components.Standard()
	}
	core.Register(a.registry)
	var err error
	var ignored ignored
	if a.values, err = config.Load(a.registry, config.Options{Explicit: a.options.Settings, Foreign: ignored.foreign, Skipped: ignored.skipped}); err != nil {
		return err
	}
	log := a.options.Logger
	if log == nil {
		levels, err := core.ParseLog(a.registry, a.values)
		if err != nil {
			return err
		}
		log, a.log = newLog(levels)
	}
	var session core.Session
	var waiting core.Progress
	if err := errors.Join(a.values.Decode("bootstrap", &a.boot), a.values.Decode("session", &session), a.values.Decode("progress", &waiting), a.values.Decode("threads", &a.threads)); err != nil {
		return err
	}
	a.reports = session.Report
	if a.isExplaining = session.Explain; a.isExplaining && !slices.Contains(a.reports, reportExplain) {
		a.reports = append(slices.Clone(a.reports), reportExplain)
	}
	a.lateRoutes = slices.Contains(a.reports, reportExplain)
	if slices.Contains(a.reports, reportTiming) {
		a.timing = newTiming(began)
	}
	a.timing.mark(stepConfiguration)
	if a.selections, err = a.registry.SelectAll(ctx, a.values); err != nil {
		return err
	}
	if _, err := a.Forced(a.values); err != nil {
		return err
	}
	a.timing.probes(a.selections)
	a.timing.mark(stepSelection)
	if err := a.openBootstrap(ctx, log); err != nil {
		return err
	}
	a.timing.mark(stepBootstrap)
	identity := a.client.Identity()
	if a.log != nil {
		file, _ := a.values.Get("log.file")
		if err := a.log.open(file.Text, int(identity.Proc.Rank)); err != nil {
			return fmt.Errorf("%w (%s)", err, file.Source)
		}
	}
	if a.speaks() {
		ignored.log(log)
	}
	opt, err := waiting.Options()
	if err != nil {
		return err
	}
	if a.fabric, err = a.registry.Spread(ctx, a.values, a.selections, identity.IsSpread()); err != nil {
		return err
	}
	opt.Labels, opt.NodeProcs = labels(ctx, identity.Proc), len(identity.OnMachine())
	worlds := framework.NewWorlds(identity.Proc.Namespace)
	a.cards, a.giveUp, a.droppablePeer = cards{a}, a.tellGivenUp, a.droppable
	err = a.Stack.open(ctx, progress.Env{
		Identity: identity, Worlds: worlds, Node: nodeID(a.values, identity.NodeMark()), Engine: progress.New(opt), Logger: log,
		Self: framework.Life{ID: worlds.ID(identity.Proc), Nonce: newNonce()},
	}, serialize(a.timing.watch(a.options.Hooks)))
	if err != nil {
		return err
	}
	if err := a.encodeOffers(); err != nil {
		return err
	}
	a.timing.mark(stepModules)
	a.here = newNodeProcs(&a.env)
	if events, ok := framework.As[bootstrap.EventSource](a.client); ok {
		events.Begin(a.env.Self.Nonce)
		events.OnEvent(a.event)
	}
	a.timing.mark(stepSession)
	log.Info("open", "process", identity.Proc.String(), "of", identity.Size, "pml", a.pmls[0].Name, "transports", strings.Join(a.carry, ","))
	return nil
}

// encodeOffers encodes the capabilities of the PMLs and the card.
func (a *Assembly) encodeOffers() (err error) {
	if a.offers, a.card.bytes, err = encodeCard(a.pmls, a.Card()); err != nil {
		return err
	}
	for _, m := range a.pmls {
		a.decodedOffers = append(a.decodedOffers, m.Offer())
	}
	return nil
}

// labels returns a context that has the labels of the process's own goroutines: those of
// ctx, and the rank in the job.
func labels(ctx context.Context, p framework.Proc) context.Context {
	var list []string
	pprof.ForLabels(ctx, func(key, value string) bool {
		list = append(list, key, value)
		return true
	})
	return pprof.WithLabels(context.Background(), pprof.Labels(append(list, LabelRank, strconv.Itoa(int(p.Rank)))...))
}

// LabelRank is the profile label that has a process's rank in its job.
const LabelRank = "ferry.rank"

func newNonce() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	return binary.NativeEndian.Uint64(b[:]) | 1
}

// openBootstrap opens the first bootstrap of the selection. Another one is no
// substitute if that fails: a program that was started under a launcher must not
// become N singletons.
// speaks reports whether this process is the one that says what is so for all of the node:
// `ferry run` has said it for its ranks.
func (a *Assembly) speaks() bool {
	identity := a.client.Identity()
	if identity.Singleton || a.options.Client != nil {
		return identity.Singleton
	}
	return identity.Leads() && a.selections[framework.Bootstrap].Chosen[0].Verdict.Name != "local"
}

func (a *Assembly) openBootstrap(ctx context.Context, log *slog.Logger) error {
	if a.options.Client != nil {
		a.client = a.options.Client
		return nil
	}
	choice, err := a.selections[framework.Bootstrap].One()
	if err != nil {
		return err
	}
	component, ok := choice.Component.(bootstrap.Component)
	if !ok {
		return wrongContract(choice)
	}
	c, err := component.Open(ctx, bootstrap.Env{Params: choice.Params, Logger: logger(log, framework.Bootstrap, choice.Verdict.Name), Timeout: a.boot.Timeout,
		HostTimeout: a.boot.HostTimeout, ProcessTimeout: a.boot.ProcessTimeout})
	if err == nil {
		c, err = bootstrap.CheckedClient(choice.Verdict.Name, c)
	}
	if err != nil {
		return err // whatever c is
	}
	a.client = c
	return nil
}

func wrongContract(c framework.Choice) error {
	return fmt.Errorf("%w: component %s %s (%T) does not implement its framework's contract", framework.ErrConfig, c.Verdict.Kind, c.Verdict.Name, c.Component)
}

// Values returns the values of all parameters that the assembly was opened with.
func (a *Assembly) Values() *framework.Values { return a.values }

// Client returns the bootstrap client in use.
func (a *Assembly) Client() bootstrap.Client { return a.client }

// Join returns the values of all parameters for one more user of the assembly, with
// options of its own. What is of process scope is the first one's; another may only
// repeat it, and gets ErrConfig where it differs.
func (a *Assembly) Join(o Options) (*framework.Values, error) {
	if o.Registry != nil && o.Registry != a.options.Registry {
		return nil, fmt.Errorf("%w: WithRegistry: another session is open with another registry; close it first", framework.ErrConfig)
	}
	if o.Hooks != nil && !Same(o.Hooks, a.options.Hooks) {
		return nil, fmt.Errorf("%w: WithHooks: another session is open with other hooks; close it first", framework.ErrConfig)
	}
	values, err := config.Load(a.registry, config.Options{Explicit: o.Settings})
	if err != nil {
		return nil, err
	}
	if _, err := a.Forced(values); err != nil {
		return nil, err
	}
	for _, name := range values.Diff(a.values, framework.ScopeProcess) {
		for _, set := range o.Settings {
			if set.Name != name {
				continue
			}
			mine, _ := values.Get(name)
			theirs, _ := a.values.Get(name)
			spec, _ := values.Spec(name)
			return nil, fmt.Errorf("%w: parameter %s has process scope: an open session has %q (%s), and this one asks for %q (%s)",
				framework.ErrConfig, name, spec.Redact(theirs.Text), theirs.Source, spec.Redact(mine.Text), mine.Source)
		}
	}
	return values, nil
}

// Same reports whether two values are the same one. What can't be compared, such
// as a function, is not.
func Same(a, b any) bool {
	return a == nil && b == nil || a != nil && b != nil && reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

// Bound limits a step of the wire-up. A client that this assembly opened has the limit already, and names the missing members
// when it passes. Another one gets it with the context, which ends a little later.
func (a *Assembly) Bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if a.process != nil {
		return a.process.Bound(ctx)
	}
	if a.options.Client == nil {
		return ctx, func() {}
	}
	timeout := bootstrap.Timeout(ctx, a.boot.Timeout)
	return context.WithTimeout(bootstrap.WithTimeout(ctx, timeout), timeout+timeout/4)
}

// Drain waits for at most linger until all that was accepted is on its way, tells
// peers that nothing more comes, and gives the launcher its reports. Close is next.
func (a *Assembly) Drain(linger time.Duration) error {
	a.timing.mark(stepClose)
	var errs []error
	ctx, cancel := context.WithTimeout(context.Background(), linger)
	defer cancel()
	for _, m := range a.pmls {
		if err := m.Flush(ctx); err != nil {
			errs = append(errs, framework.Ended(ctx, fmt.Sprintf("close session: pml %s has sends that did not leave within session.linger=%v", m.Name, linger), err))
		}
	}
	return errors.Join(append(errs, a.report())...)
}

// Close frees what Open has made. Closing again gives the same result.
func (a *Assembly) Close() error {
	a.closing.Do(func() {
		a.closed = a.close()
		if a.log != nil {
			a.closed = errors.Join(a.closed, a.log.close())
		}
	})
	return a.closed
}

// WhileOpen calls read, and returns true, unless the transports are closed or closing. Close waits until read returns. It protects
// reports on the streams of a process, which may end at any time. Calls do not nest.
func (a *Assembly) WhileOpen(read func()) bool {
	a.readers.RLock()
	defer a.readers.RUnlock()
	if a.isFreed {
		return false
	}
	read()
	return true
}

func (a *Assembly) close() error {
	if a.client == nil {
		return nil
	}
	events, ok := framework.As[bootstrap.EventSource](a.client)
	if a.process != nil {
		ok = false // The events are those of the process.
		a.process.removeStream(a)
	}
	if ok {
		events.OnEvent(nil)
	}
	a.upcalls.Lock()
	a.upcalls.closing = true
	close(a.upcalls.stop)
	a.upcalls.Unlock()
	a.upcalls.running.Wait()
	a.readers.Lock()
	a.isFreed = true
	a.readers.Unlock()
	err := a.Stack.Close()
	if ok {
		events.End()
	}
	if a.process == nil && a.options.Client == nil {
		err = errors.Join(err, a.client.Close())
	}
	return err
}
