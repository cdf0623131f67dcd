package pmix

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/launched"
	"github.com/ferrympi/ferry/bootstrap/internal/mapping"
	"github.com/ferrympi/ferry/internal/pmixc"
)

// slurmMapping has the process mapping of a step of Slurm.
const slurmMapping = "SLURM_PMIX_MAPPING_SERV"

// nodeMap is the map of the nodes, once it was requested.
type nodeMap struct {
	// Holds a token while no call requests the map.
	lock    chan struct{}
	isKnown bool
	// Empty if the server has no valid map.
	runs bootstrap.NodeMap
}

func newNodeMap() nodeMap {
	m := nodeMap{lock: make(chan struct{}, 1)}
	m.lock <- struct{}{}
	return m
}

// NodeMap implements bootstrap.NodeMapper. The first call asks the server of this node, once for
// each node of the job.
func (l *launcher) NodeMap(ctx context.Context) (bootstrap.NodeMap, error) {
	const op = "resolve the nodes"
	select {
	case <-l.nodes.lock:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { l.nodes.lock <- struct{}{} }()
	if l.nodes.isKnown && !l.isClosed.Load() {
		return l.nodes.runs, nil
	}
	if _, hasFinalized := l.finalizedSets(); hasFinalized {
		return nil, nil
	}
	if err := l.checkUsable(op); err != nil {
		return nil, err
	}
	m, err := l.resolveNodeMap(ctx)
	if !isAnswer(err) {
		return nil, callError(ctx, op, err)
	}
	if err != nil {
		l.log.Info("bootstrap pmix: invalid map of the nodes dropped", "error", err)
	}
	l.nodes.isKnown, l.nodes.runs = true, m
	return m, nil
}

// preloadNodeMap requests the map, unless it is known, until ctx ends. After PMIx_Finalize a
// process cannot request it, and processes with and without a map would create different
// communicators.
func (p *process) preloadNodeMap(ctx context.Context) {
	select {
	case <-p.nodes.lock:
	case <-ctx.Done(): // A call waits for the server.
		return
	}
	defer func() { p.nodes.lock <- struct{}{} }()
	if p.nodes.isKnown {
		return
	}
	if m, err := p.resolveNodeMap(ctx); isAnswer(err) {
		p.nodes.isKnown, p.nodes.runs = true, m
	}
}

// isAnswer reports whether the server has answered, with a map, an invalid one or a refusal.
func isAnswer(err error) bool {
	var refused *pmixc.Error
	return err == nil || errors.Is(err, errNoMap) || errors.As(err, &refused)
}

// errNoMap is the error of an invalid map.
var errNoMap = errors.New("no map of the nodes")

// resolveNodeMap returns the map of the environment under Slurm, and otherwise that of the server.
// It returns no map in an added process, because the server numbers the nodes of each namespace.
func (p *process) resolveNodeMap(ctx context.Context) (bootstrap.NodeMap, error) {
	if p.isAdded {
		return nil, nil
	}
	if text, has := os.LookupEnv(slurmMapping); has && launched.IsSlurmPMIx(os.LookupEnv) {
		m, err := mapping.Parse(text, p.id.Size)
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %w", errNoMap, slurmMapping, err)
		}
		return checkLocals(p.id, m)
	}
	return resolveBy(ctx, p.lib, p.id)
}

// checkLocals returns a map if it agrees with the processes of this node that the server has named.
func checkLocals(id bootstrap.Identity, m bootstrap.NodeMap) (bootstrap.NodeMap, error) {
	if here := id.OnNode(m).LocalRanks; id.LocalSize > 0 && !slices.Equal(here, id.LocalRanks) {
		return nil, fmt.Errorf("%w: it has ranks %v on this node, and the server names %v", errNoMap, here, id.LocalRanks)
	}
	return m, nil
}

// A resolver is the part of libpmix that lists nodes and processes.
type resolver interface {
	Nodes(ctx context.Context, namespace string) (string, error)
	Peers(ctx context.Context, node, namespace string) ([]pmixc.Proc, error)
}

// resolveBy returns the map of a server.
func resolveBy(ctx context.Context, r resolver, id bootstrap.Identity) (bootstrap.NodeMap, error) {
	limited, cancel := withTimeout(ctx, callTimeout)
	list, err := r.Nodes(limited, id.Proc.Namespace)
	cancel()
	if err != nil {
		return nil, err
	}
	names := strings.Split(list, ",")
	if len(names) > id.Size || slices.Contains(names, "") {
		return nil, fmt.Errorf("%w: nodes %s of %d processes", errNoMap, quote(list), id.Size)
	}
	var runs []bootstrap.NodeRun
	for node, name := range names {
		limited, cancel := withTimeout(ctx, callTimeout)
		procs, err := r.Peers(limited, name, id.Proc.Namespace)
		cancel()
		if err != nil {
			return nil, err
		}
		for _, p := range procs {
			if p.Namespace != id.Proc.Namespace {
				return nil, fmt.Errorf("%w: node %s has a process of %s", errNoMap, quote(name), quote(p.Namespace))
			}
			if len(runs) == id.Size {
				return nil, fmt.Errorf("%w: the nodes have more than %d processes", errNoMap, id.Size)
			}
			runs = append(runs, bootstrap.NodeRun{First: p.Rank, Count: 1, Node: uint32(node)})
		}
	}
	m, err := bootstrap.MakeNodeMap(0, id.Size, runs)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoMap, err)
	}
	return checkLocals(id, m)
}
