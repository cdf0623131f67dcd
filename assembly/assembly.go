// Package assembly builds a process from components. It reads the configuration, selects components, connects to the launcher, opens the
// modules of all frameworks, exchanges business cards with other processes, explains its choices, and closes everything again.
//
// An Assembly is an independent value. Several may exist in one operating-system process, each as a separate process of its job. Package
// mpi shares one among the sessions of a process. A Stack is the part without configuration and launcher. Test kits use it alone.
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

// Options are the inputs of Open. The zero value is a process with the standard components and the configuration of its environment.
type Options struct {
	// Registry replaces components.Standard if it is not nil. Open does not change it.
	Registry *framework.Registry
	// Client replaces the selected bootstrap if it is not nil. The caller closes it.
	Client bootstrap.Client
	// Settings take precedence over all other sources of parameters.
	Settings []framework.Setting
	// Logger replaces the log of the parameters log and log.file if it is not nil.
	Logger *slog.Logger
	// Hooks may be nil.
	Hooks pml.Hooks
	// Watcher may be nil.
	Watcher Watcher
}

// A Watcher receives the events of the job. Calls come one at a time, except for Dump. No call comes after Close.
type Watcher interface {
	// PeerChanged reports that no more messages are exchanged with a process, after all PMLs were notified. The bootstrap may
	// report this process itself as Failed. Unreachable then follows for all others, because this process is isolated.
	PeerChanged(ev framework.PeerEvent)
	// CollectivesBroken reports that a process that is alive takes part in no further collective of a communicator.
	CollectivesBroken(comm cid.Extended, by framework.Proc, reason string)
	// CommRevoked reports that another process has revoked a communicator.
	CommRevoked(comm cid.Extended, by framework.Proc)
	// NoteReceived passes a note of another process.
	NoteReceived(from framework.Incarnation, body string)
	// Dump requests a report of a kind that the launcher names, such as that of the operations that the process waits for. It may run
	// during another call, also of Dump with another kind, and must not wait for it.
	Dump(kind string)
}

// Assembly is one process of a job. Its methods may be called concurrently.
type Assembly struct {
	*Stack
	// Zero in the assembly of a process.
	streamOf
	options Options
	// nil if the program has its own logger.
	log             *sink
	bootstrapParams core.Bootstrap
	reports         []string
	isExplaining    bool // Parameter explain.
	threadParams    threads.Params
	client          bootstrap.Client
	// capabilities are the capabilities of all PMLs as they are sent, and decodedCapabilities the same as values.
	capabilities        []byte
	decodedCapabilities []pml.Capabilities
	ownCard             card // Guarded by cardMu.

	closeOnce sync.Once
	readers   sync.RWMutex // See WhileOpen.
	// Whether the transports are closed or closing. Guarded by readers.
	isFreed  bool
	closeErr error
	// Held while PMLs learn a card. Locked before mu.
	learnMu sync.Mutex
	cardMu  sync.Mutex

	mu        sync.Mutex
	peers     peerRecords
	nodeProcs nodeProcs
	// Routes of members when their communicator was created.
	savedRoutes   map[framework.Incarnation]Pair
	tables        map[int]recordedTable // By number of members.
	failed        failureList
	left          map[framework.Incarnation]struct{} // See Left.
	streams       streams
	refusedComms  []cid.Span // See HasRefused.
	droppedRoutes routeHistory
	omissions     map[string]omission // By coll component.
	// Reason of the isolation of this process, or nil.
	isolation error

	wireUps wireUps

	constructs struct {
		last uint64
		// Descriptions of those in progress.
		waiting map[uint64]string
		cancel  map[uint64]context.CancelCauseFunc // Of those with other processes.
	}

	upcalls struct {
		sync.Mutex
		isClosing bool
		// isIsolated reports that the isolation of this process is in the queue, or was delivered.
		isIsolated bool
		stop       chan struct{} // Closed when isClosing is set.
		// Reason why no notes are sent after the loss of the launcher.
		lost         error
		queue        []upcall // Pending, in order.
		queuedNotes  int      // Number of notes in the queue.
		isDelivering bool
		dumping      map[string]bool // Kinds of the dumps in progress.
		running      sync.WaitGroup
	}
}

// card is the business card of this process. The edition rises with each change.
type card struct {
	bytes   []byte
	edition uint32
}

// Open opens a process. It sends no message to another process, and connects to the launcher. It returns ErrConfig if the configuration is
// wrong or lacks a component that it names, and ErrTransport if the launcher cannot be reached. After an error no resource is left open.
func Open(ctx context.Context, o Options) (*Assembly, error) {
	a := &Assembly{
		Stack: new(Stack), options: o,
		peers: newPeerRecords(), savedRoutes: map[framework.Incarnation]Pair{},
	}
	a.constructs.waiting, a.constructs.cancel = map[uint64]string{}, map[uint64]context.CancelCauseFunc{}
	a.upcalls.stop = make(chan struct{})
	if err := a.open(ctx); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

// openNeed is the minimum for a process. It has descriptors for the runtime's poller and a file, and a thread for the progress goroutine.
var openNeed = limits.Need{Files: 3, Threads: 1, Space: 16 << 20}

func (a *Assembly) open(ctx context.Context) error {
	began := now(stepOpen)
	if err := openNeed.Check(); err != nil {
		return fmt.Errorf("%w: this process is at its limits: %w", framework.ErrUnsupported, err)
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
	if err := errors.Join(a.values.Decode("bootstrap", &a.bootstrapParams), a.values.Decode("session", &session), a.values.Decode("progress", &waiting), a.values.Decode("threads", &a.threadParams)); err != nil {
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
	if _, err := a.ForcedAlgorithms(a.values); err != nil {
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
	if a.warnsForNode() {
		ignored.log(log)
	}
	opt, err := waiting.Options()
	if err != nil {
		return err
	}
	if a.fabric, err = a.registry.PreferNetwork(ctx, a.values, a.selections, identity.IsSpread()); err != nil {
		return err
	}
	opt.Labels, opt.NodeProcs = labels(ctx, identity.Proc), len(identity.MachineRanks())
	worlds := framework.NewWorlds(identity.Proc.Namespace)
	a.cards, a.disconnect, a.droppablePeer = cards{a}, a.disconnectPeer, a.droppable
	err = a.Stack.open(ctx, progress.Env{
		Identity: identity, Worlds: worlds, Node: nodeID(a.values, identity.NodeLabel()), Engine: progress.New(opt), Logger: log,
		Self: framework.Incarnation{ID: worlds.ID(identity.Proc), Nonce: newNonce()},
	}, serialize(a.timing.watch(a.options.Hooks)))
	if err != nil {
		return err
	}
	if err := a.encodeCapabilities(); err != nil {
		return err
	}
	a.timing.mark(stepModules)
	a.nodeProcs = newNodeProcs(&a.env)
	if events, ok := framework.As[bootstrap.EventSource](a.client); ok {
		events.BeginIncarnation(a.env.Self.Nonce)
		events.OnEvent(a.event)
	}
	a.timing.mark(stepSession)
	log.Info("open", "process", identity.Proc.String(), "of", identity.Size, "pml", a.pmls[0].Name, "transports", strings.Join(a.transportNames, ","))
	return nil
}

// encodeCapabilities encodes the capabilities of the PMLs and the card.
func (a *Assembly) encodeCapabilities() (err error) {
	if a.capabilities, a.ownCard.bytes, err = encodeCard(a.pmls, a.Card()); err != nil {
		return err
	}
	for _, m := range a.pmls {
		a.decodedCapabilities = append(a.decodedCapabilities, m.Capabilities())
	}
	return nil
}

// labels returns a context with the profile labels of the goroutines of this process, which are those of ctx and the rank in the job.
func labels(ctx context.Context, p framework.Proc) context.Context {
	var list []string
	pprof.ForLabels(ctx, func(key, value string) bool {
		list = append(list, key, value)
		return true
	})
	return pprof.WithLabels(context.Background(), pprof.Labels(append(list, LabelRank, strconv.Itoa(int(p.Rank)))...))
}

// LabelRank is the profile label for the rank of a process in its job.
const LabelRank = "ferry.rank"

func newNonce() uint64 {
	var b [8]byte
	rand.Read(b[:]) // Never fails, see crypto/rand.
	return binary.NativeEndian.Uint64(b[:]) | 1
}

// warnsForNode reports whether this process logs warnings about its node on behalf of all processes there. `ferry run` logs them itself.
func (a *Assembly) warnsForNode() bool {
	identity := a.client.Identity()
	if identity.IsSingleton || a.options.Client != nil {
		return identity.IsSingleton
	}
	return identity.IsJobReporter() && a.selections[framework.Bootstrap].Chosen[0].Verdict.Name != "local"
}

// openBootstrap opens the first bootstrap of the selection. It does not fall back to the next one, because a program started by a launcher
// must not become many singletons.
func (a *Assembly) openBootstrap(ctx context.Context, log *slog.Logger) error {
	if a.options.Client != nil {
		a.client = a.options.Client
		return nil
	}
	choice, err := a.selections[framework.Bootstrap].TakeFirst()
	if err != nil {
		return err
	}
	component, ok := choice.Component.(bootstrap.Component)
	if !ok {
		return wrongContract(choice)
	}
	c, err := component.Open(ctx, bootstrap.Env{Params: choice.Params, Logger: logger(log, framework.Bootstrap, choice.Verdict.Name), Timeout: a.bootstrapParams.Timeout,
		HostTimeout: a.bootstrapParams.HostTimeout, ProcessTimeout: a.bootstrapParams.ProcessTimeout,
		MaxRanks: a.bootstrapParams.MaxRanks})
	if err == nil {
		c, err = bootstrap.CheckedClient(choice.Verdict.Name, c)
	}
	if err != nil {
		return err // Of the client or of the check of it.
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

// Join returns the values of all parameters for a further user of the assembly, with the settings of o. Parameters of process scope keep the
// values of the first user. It returns ErrConfig if o asks for other values, another registry or other hooks.
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
	if _, err := a.ForcedAlgorithms(values); err != nil {
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
			return nil, fmt.Errorf("%w: parameter %s has process scope: the open session uses %q (%s), and this one requests %q (%s); close it first or use the same value",
				framework.ErrConfig, name, spec.Redact(theirs.Text), theirs.Source, spec.Redact(mine.Text), mine.Source)
		}
	}
	return values, nil
}

// Same reports whether two values are comparable and equal.
func Same(a, b any) bool {
	return a == nil && b == nil || a != nil && b != nil && reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

// Bound returns a context for one step of the wire-up. A client opened by this assembly applies bootstrap.timeout itself, and its error names
// the missing members. For another client the context ends a little later than the timeout.
func (a *Assembly) Bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if a.process != nil {
		return a.process.Bound(ctx)
	}
	if a.options.Client == nil {
		return ctx, func() {}
	}
	timeout := bootstrap.Timeout(ctx, a.bootstrapParams.Timeout)
	return context.WithTimeout(bootstrap.WithTimeout(ctx, timeout), timeout+timeout/4)
}

// Drain flushes the PMLs for at most linger, which includes notifying peers, and sends the reports to the launcher. The caller calls Close next.
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

// Close frees all resources. Further calls return the result of the first.
func (a *Assembly) Close() error {
	a.closeOnce.Do(func() {
		a.closeErr = a.close()
		if a.log != nil {
			a.closeErr = errors.Join(a.closeErr, a.log.close())
		}
	})
	return a.closeErr
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
		ok = false // Events belong to the process.
		a.process.removeStream(a)
	}
	if ok {
		events.OnEvent(nil)
	}
	a.upcalls.Lock()
	a.upcalls.isClosing = true
	close(a.upcalls.stop)
	a.upcalls.Unlock()
	a.upcalls.running.Wait()
	a.readers.Lock()
	a.isFreed = true
	a.readers.Unlock()
	err := a.Stack.Close()
	if ok {
		events.EndIncarnation()
	}
	if a.process == nil && a.options.Client == nil {
		err = errors.Join(err, a.client.Close())
	}
	return err
}
