package pmix

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/pmixc"
)

// psets are the process sets that were requested before finalization.
type psets struct {
	names   []string
	members map[string]framework.Procs
}

// Psets returns the names of the server's process sets. Of the tested launchers PRRTE has some. The
// others return different errors, which mean that there are none.
func (l *launcher) Psets(ctx context.Context) ([]string, error) {
	const op = "list process sets"
	if known, ok := l.finalizedSets(); ok {
		return known.names, nil
	}
	if err := l.checkUsable(op); err != nil {
		return nil, err
	}
	limited, cancel := withTimeout(ctx, callTimeout)
	defer cancel()
	list, err := l.lib.Psets(limited)
	var none *pmixc.Error
	if err != nil && !errors.As(err, &none) {
		return nil, callError(ctx, op, err)
	}
	names := strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
	l.mu.Lock()
	l.psets.names = names
	l.mu.Unlock()
	return slices.Clone(names), nil
}

// Pset requests the members of a process set.
func (l *launcher) Pset(ctx context.Context, name string) (bootstrap.PsetInfo, error) {
	names, err := l.Psets(ctx)
	if err != nil {
		return bootstrap.PsetInfo{}, err
	}
	at := slices.IndexFunc(names, func(n string) bool { return strings.EqualFold(n, name) })
	if at < 0 {
		return bootstrap.PsetInfo{}, fmt.Errorf("%w: %q; there are %s", framework.ErrPset, name,
			strings.Join(append(bootstrap.BuiltinPsets(), names...), ", "))
	}
	info := bootstrap.PsetInfo{Name: names[at]}
	op := fmt.Sprintf("read process set %q", info.Name)
	if known, ok := l.finalizedSets(); ok {
		members, isKnown := known.members[info.Name]
		if info.Members = members; !isKnown {
			return info, l.checkUsable(op)
		}
		return info, nil
	}
	limited, cancel := withTimeout(ctx, callTimeout)
	defer cancel()
	procs, err := l.lib.Pset(limited, info.Name)
	if err != nil {
		return bootstrap.PsetInfo{}, callError(ctx, op, err)
	}
	var members framework.ProcsBuilder
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range procs {
		proc, _ := l.jobProc(p)
		members.Add(proc)
	}
	info.Members = members.Procs()
	if l.psets.members == nil {
		l.psets.members = map[string]framework.Procs{}
	}
	l.psets.members[info.Name] = info.Members
	return info, nil
}

// finalizedSets returns the known process sets if this process has finalized.
func (l *launcher) finalizedSets() (known psets, ok bool) {
	if l.isClosed.Load() {
		return psets{}, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.isFinalized {
		return psets{}, false
	}
	return psets{names: slices.Clone(l.psets.names), members: maps.Clone(l.psets.members)}, true
}
