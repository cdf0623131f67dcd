package assembly

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/components"
	"github.com/ferrympi/ferry/components/core"
	"github.com/ferrympi/ferry/config"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/limits"
	"github.com/ferrympi/ferry/progress"
)

// Open opens a process. It sends no message to another process, and connects to the launcher. It returns ErrConfig if the configuration is
// wrong or lacks a component that it names, and ErrTransport if the launcher cannot be reached. After an error no resource is left open.
func Open(ctx context.Context, o Options) (*Assembly, error) {
	a := newAssembly(new(Stack), o)
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
	var ignored ignored
	if err := a.loadValues(&ignored); err != nil {
		return err
	}
	log, waiting, err := a.decodeParameters()
	if err != nil {
		return err
	}
	if slices.Contains(a.reportNames, reportTiming) {
		a.timing = newTiming(began)
	}
	a.timing.mark(stepConfiguration)
	if err := a.selectComponents(ctx); err != nil {
		return err
	}
	a.timing.mark(stepSelection)
	if err := a.openBootstrap(ctx, log); err != nil {
		return err
	}
	a.timing.mark(stepBootstrap)
	identity := a.client.Identity()
	if a.logSink != nil {
		file, _ := a.values.Get("log.file")
		if err := a.logSink.open(file.Text, int(identity.Proc.Rank)); err != nil {
			return fmt.Errorf("%w (%s)", err, file.Source)
		}
	}
	if a.warnsForNode() {
		ignored.log(log)
	}
	if err := a.openModules(ctx, waiting, log); err != nil {
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

// loadValues completes the registry and loads the values of its parameters.
func (a *Assembly) loadValues(skipped *ignored) (err error) {
	if a.options.Registry != nil {
		a.registry = a.options.Registry.Clone()
	} else {
		a.registry = components.Standard()
	}
	core.Register(a.registry)
	a.values, err = config.Load(a.registry, config.Options{Explicit: a.options.Settings, Foreign: skipped.foreign, Skipped: skipped.skipped})
	return err
}

// decodeParameters decodes the parameters of the process itself. It returns its logger, and the parameters of waits.
func (a *Assembly) decodeParameters() (log *slog.Logger, waiting core.Progress, err error) {
	if log = a.options.Logger; log == nil {
		levels, err := core.ParseLog(a.registry, a.values)
		if err != nil {
			return nil, waiting, err
		}
		log, a.logSink = newLog(levels)
	}
	var session core.Session
	if err := errors.Join(a.values.Decode("bootstrap", &a.bootstrapParams), a.values.Decode("session", &session), a.values.Decode("progress", &waiting), a.values.Decode("threads", &a.threadParams)); err != nil {
		return nil, waiting, err
	}
	a.reportNames = session.Report
	if a.isExplaining = session.Explain; a.isExplaining && !slices.Contains(a.reportNames, reportExplain) {
		a.reportNames = append(slices.Clone(a.reportNames), reportExplain)
	}
	a.hasLateRoutes = slices.Contains(a.reportNames, reportExplain)
	return log, waiting, nil
}

// selectComponents selects the components of all kinds, and checks coll.force against them.
func (a *Assembly) selectComponents(ctx context.Context) (err error) {
	if a.selections, err = a.registry.SelectAll(ctx, a.values); err != nil {
		return err
	}
	if _, err := a.ForcedAlgorithms(a.values); err != nil {
		return err
	}
	a.timing.probes(a.selections)
	return nil
}

// openModules opens the stack of the process with a new engine.
func (a *Assembly) openModules(ctx context.Context, waiting core.Progress, log *slog.Logger) error {
	opt, err := waiting.Options()
	if err != nil {
		return err
	}
	identity := a.client.Identity()
	if a.isFabricUnrequested, err = a.registry.PreferNetwork(ctx, a.values, a.selections, identity.IsSpread()); err != nil {
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
	return a.encodeCapabilities()
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
