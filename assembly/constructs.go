package assembly

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
)

// constructs are the group constructs in progress. Guarded by Assembly.mu.
type constructs struct {
	lastNumber   uint64
	descriptions map[uint64]string
	// Only of constructs with other processes.
	cancelByNumber map[uint64]context.CancelCauseFunc
}

// add adds a construct, and returns its number.
func (c *constructs) add(description string) uint64 {
	c.lastNumber++
	c.descriptions[c.lastNumber] = description
	return c.lastNumber
}

func (c *constructs) remove(number uint64) {
	delete(c.descriptions, number)
	delete(c.cancelByNumber, number)
}

// list returns the descriptions in the order of the calls.
func (c *constructs) list() []string {
	var all []string
	for _, number := range slices.Sorted(maps.Keys(c.descriptions)) {
		all = append(all, c.descriptions[number])
	}
	return all
}

// Construct makes a group construct of the bootstrap within bootstrap.timeout.
func (a *Assembly) Construct(ctx context.Context, group []framework.Proc, tag string, body []byte) (bootstrap.Constructed, error) {
	ctx, cancel := a.Bound(ctx)
	defer cancel()
	a.mu.Lock()
	if isolated := a.isolationErr; isolated != nil && len(group) > 1 { // A bootstrap may work without its launcher.
		a.mu.Unlock()
		return bootstrap.Constructed{}, isolated
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	number := a.constructs.add(fmt.Sprintf("%q with %d processes", tag, len(group)))
	if len(group) > 1 {
		a.constructs.cancelByNumber[number] = end
	}
	a.mu.Unlock()
	a.timing.mark(stepConstruct)
	made, err := a.client.Construct(ctx, group, tag, body)
	a.timing.mark(stepConstructed)
	a.mu.Lock()
	a.constructs.remove(number)
	isolated := a.isolationErr
	a.mu.Unlock()
	if err != nil && isolated != nil && len(group) > 1 {
		return made, isolated
	}
	if err != nil {
		return made, framework.Ended(ctx, "group construct", err)
	}
	if made.ContextID == 0 || len(made.Payloads) != len(group) {
		return made, fmt.Errorf("%w: bootstrap: construct of %d members gave context id %d and %d payloads",
			framework.ErrTransport, len(group), made.ContextID, len(made.Payloads))
	}
	return made, nil
}

// Constructs describes the group constructs that wait for others.
func (a *Assembly) Constructs() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.constructs.list()
}
