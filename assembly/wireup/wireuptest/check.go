package wireuptest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ferrympi/ferry/framework"
)

// Check returns an error unless the outcomes of a job are alike: all live members have created one communicator with the right table, or
// each has an error that names a member at fault. If a member died after its confirmation, the others may have created the communicator.
// Members behind it then have refused it.
func (j Job) Check(r Result) error {
	faults := map[int]Fault{}
	for _, f := range j.Faults {
		faults[f.Member] = f
	}
	created, failed := -1, -1
	for i, o := range r.Outcomes {
		_, isFaulty := faults[i]
		switch {
		case o.HasDied || !o.HasCalled:
			continue
		case o.Table == nil && o.Err == nil:
			return fmt.Errorf("member %d has neither a table nor an error", i)
		case o.Err == nil && created >= 0 && o.Table.ID() != r.Outcomes[created].Table.ID():
			return fmt.Errorf("member %d created %d, and member %d created %d", created, r.Outcomes[created].Table.ID(), i, o.Table.ID())
		case o.Err == nil:
			created = i
		case isFaulty && (faults[i].Kind == Late || faults[i].Kind == Other): // Its own error names the others.
		case j.names(r, o.Err) || isFaulty && faults[i].Kind == Cancel && errors.Is(o.Err, context.Canceled):
			failed = i
		default:
			return fmt.Errorf("the error of member %d names no member at fault: %w", i, o.Err)
		}
	}
	if created >= 0 && failed >= 0 {
		if err := j.checkRefused(r, r.Outcomes[created].Table.ID()); err != nil {
			return err
		}
	}
	if created < 0 {
		return nil
	}
	return j.checkTable(r, created)
}

// names reports whether an error names members at fault, and no others.
func (j Job) names(r Result, err error) bool {
	m, ok := errors.AsType[*framework.MissingError](err)
	if !ok {
		return false
	}
	for _, p := range append(m.Missing, m.Failed...) {
		if !slices.ContainsFunc(j.Faults, func(f Fault) bool { return r.Layout.Proc(f.Member) == p }) {
			return false
		}
	}
	return true
}

// checkRefused returns an error unless a member has died, and each member with an error has refused the id.
func (j Job) checkRefused(r Result, id uint64) error {
	died := false
	for i, o := range r.Outcomes {
		died = died || o.HasDied
		if o.HasCalled && !o.HasDied && o.Err != nil && o.RefusedID != id {
			return fmt.Errorf("member %d neither has nor refuses %d, which others have: %w", i, id, o.Err)
		}
	}
	if !died {
		return fmt.Errorf("some members have created %d and others not, and none has died", id)
	}
	return nil
}

// checkTable returns an error unless the table of a member has the payloads of all.
func (j Job) checkTable(r Result, member int) error {
	payload := j.Payload
	if payload == nil {
		payload = SmallPayload
	}
	for i := range r.Outcomes {
		record, err := r.Outcomes[member].Table.Record(i, nil)
		if err != nil {
			return err
		}
		p := payload(i)
		if record.Nonce != p.Nonce || record.CardEdition != p.Edition || !bytes.Equal(record.Card, p.Card) || !bytes.Equal(record.Capabilities, p.Capabilities) {
			return fmt.Errorf("the table has another record of member %d than its payload", i)
		}
	}
	return nil
}
