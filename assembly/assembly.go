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
	"strconv"
	"sync"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/components/core"
	"github.com/ferrympi/ferry/config"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/threads"
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
	parameters
	options Options
	// nil if the program has its own logger.
	logSink *sink
	client  bootstrap.Client
	advertisement
	closing closing
	// Held while PMLs learn a card. Locked before mu.
	learnMu sync.Mutex

	// Guards the fields up to refusedComms.
	mu        sync.Mutex
	peers     peerRecords
	nodeProcs nodeProcs
	ends
	explainRecords
	streams      streams
	constructs   constructs
	refusedComms []cid.Span // See HasRefused.

	wireUps wireUps
	upcalls upcalls
}

// parameters are the values of the parameters that are needed after Open.
type parameters struct {
	bootstrapParams core.Bootstrap
	threadParams    threads.Params
	reportNames     []string
	// Parameter explain.
	isExplaining bool
}

// advertisement is the data of this process in every wire-up.
type advertisement struct {
	// Of all PMLs, as they are sent and as values.
	encodedCapabilities []byte
	decodedCapabilities []pml.Capabilities
	cardMu              sync.Mutex
	// Guarded by cardMu.
	ownCard card
}

// newAssembly returns an assembly that is not open.
func newAssembly(stack *Stack, o Options) *Assembly {
	return &Assembly{
		Stack: stack, options: o, peers: newPeerRecords(),
		explainRecords: explainRecords{savedRoutes: map[framework.Incarnation]Pair{}},
		constructs:     constructs{descriptions: map[uint64]string{}, cancelByNumber: map[uint64]context.CancelCauseFunc{}},
		upcalls:        upcalls{closeSignal: make(chan struct{})},
	}
}

// card is the business card of this process. The edition rises with each change.
type card struct {
	encodedCard []byte
	edition     uint32
}

// encodeCapabilities encodes the capabilities of the PMLs and the card.
func (a *Assembly) encodeCapabilities() (err error) {
	if a.encodedCapabilities, a.ownCard.encodedCard, err = encodeCard(a.pmls, a.Card()); err != nil {
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
	if a.ownerProcess != nil {
		return a.ownerProcess.Bound(ctx)
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
