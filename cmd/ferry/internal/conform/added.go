package conform

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/ferrympi/ferry/mpi"
)

// A case that adds processes publishes its name in the data of their set. The added processes run the same program,
// which calls RunIfAdded before Run.

// Room is the number of processes that the cases add at a time. Without room for them they are skipped.
const Room = 2

const roleKey = "ferry.conform.role"

// A role is the part of an added process.
type role struct {
	CaseName string
	// Number of changes of the case that have added processes, until this one.
	Stage int
}

// RunIfAdded returns false in the first processes of a job. A process that was added to the running job takes part in the case
// that has added it, which may take limit, and returns when it has left by a change. After an error the session may
// have open communicators.
func RunIfAdded(ctx context.Context, s *mpi.Session, limit time.Duration) (isAdded bool, err error) {
	world, err := s.PsetInfo(ctx, worldPset)
	if err != nil || !world.Dynamic {
		return false, err
	}
	return true, runAdded(ctx, s, limit)
}

func runAdded(ctx context.Context, s *mpi.Session, limit time.Duration) error {
	ctx, cancel := Within(ctx, limit)
	defer cancel()
	text, err := s.LookupData(ctx, worldPset, roleKey)
	if err != nil {
		return err
	}
	var r role
	if err := json.Unmarshal(text, &r); err != nil {
		return fmt.Errorf("role of an added process: %w", err)
	}
	cases := Cases()
	i := slices.IndexFunc(cases, func(c Case) bool { return c.Name == r.CaseName })
	if i < 0 {
		return fmt.Errorf("added for the case %q: this program has no such case", r.CaseName)
	}
	if err := cases[i].Run(ctx, Env{Session: s, roleStage: r.Stage}); err != nil {
		return fmt.Errorf("%s: added process: %w", r.CaseName, err)
	}
	return nil
}

// enlist gives the processes of a delta their role.
func (m *members) enlist(delta string) error {
	m.addedStages++
	text, err := json.Marshal(role{m.caseName, m.addedStages})
	if err != nil {
		return err
	}
	return m.session.PublishData(m.ctx, delta, roleKey, text)
}
