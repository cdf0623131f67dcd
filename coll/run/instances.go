package run

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/coll/leaders"
	"github.com/ferrympi/ferry/pml"
)

// openInstance is a component's instance for a communicator.
type openInstance struct {
	component string
	coll.Instance
}

// open opens the instances that components require, in all ranks at once, and includes their
// algorithms from now on. A component that fails in one rank is omitted in all. The error is that
// of the exchange. Called inside Do.
func (k *State) open(ctx context.Context) error {
	k.hasUnopened = false
	var usable []coll.ComponentOffer
	for _, o := range k.offers {
		if o.Open != nil {
			x, err := k.openOne(ctx, o)
			if err != nil {
				return fmt.Errorf("coll %s: opening it: %w", o.Component, err)
			}
			if x == nil {
				continue
			}
			k.instances = append(k.instances, openInstance{o.Component, x})
		}
		usable = append(usable, o)
	}
	if len(k.instances) > 0 {
		k.env.RankResources.pendingSteps.addToEngine()
		k.usableTable = coll.NewTable(usable, k.force)
		k.env.Host.RecordAlgorithms(k.usableTable, true)
	}
	return nil
}

// openOne opens one instance. It returns nil if the ranks omit the component.
func (k *State) openOne(ctx context.Context, o coll.ComponentOffer) (coll.Instance, error) {
	agree := k.agreeProcesses
	if k.env.IsThreadRank {
		agree = k.agreeRanks
	}
	x, failed, err := agree(ctx, o)
	if err == nil && failed == nil {
		x.Activate()
		return x, nil
	}
	if x != nil {
		x.Close()
	}
	if failed == nil {
		failed = err
	}
	k.env.Host.RecordOmission(o.Component, failed)
	return nil, err
}

// agreeProcesses opens this rank's instance, and connects it with those of the ranks on the node.
// failed is the reason for which all ranks do without, and nil in all or in none of them.
// err is the error of an exchange.
func (k *State) agreeProcesses(ctx context.Context, o coll.ComponentOffer) (x coll.Instance, failed, err error) {
	env := coll.Env{Member: coll.Member{Rank: k.env.Rank, Size: k.env.Size}, Node: k.env.Host.Node()}
	own := usable(o)
	if x, failed = o.OpenInstance(env); failed != nil {
		own.fail(cannotOpen, k.env.Rank)
	}
	near := k.near()
	records := make([]byte, near.Size*openRecord)
	encodeRecord(records[:openRecord], o, x, failed)
	var cards, verdicts coll.Schedule
	exchangeCards(&cards, near)
	if err := k.carry(ctx, &cards, records); err != nil {
		return x, failed, err
	}
	if failed == nil {
		failed = join(x, near, records, o.Component)
		own.failJoin(k.env.Rank, failed)
	}
	exchangeAllVerdicts(&verdicts, near, first(k.nodes, k.env.Rank))
	all, err := k.mergeVerdict(ctx, &verdicts, own)
	return x, all.outcome(o.Component, failed), err
}

// openRecord is the size of a rank's record in bytes. The record has the length of the card plus
// one, or 0 if the rank has failed, the card, and the checksum of the offer.
const openRecord = 1 + coll.CardSize + termsSize

// termsSize is the size of coll.Offer.Checksum, which follows the card.
const termsSize = 4

// encodeRecord writes the record of a rank that has opened x, or has failed.
func encodeRecord(record []byte, o coll.ComponentOffer, x coll.Instance, failed error) {
	binary.LittleEndian.PutUint32(record[openRecord-termsSize:], o.Checksum())
	if failed == nil {
		record[0] = byte(1 + copy(record[1:], x.Card()))
	}
}

// recordError is the error of a record of another rank.
type recordError struct {
	rank      int
	kind      failureKind
	component string
}

func (e *recordError) Error() string {
	if e.kind == differentTerms {
		return fmt.Sprintf("rank %d has other values of coll.%s's parameters: all ranks need the same", e.rank, e.component)
	}
	return fmt.Sprintf("rank %d could not open its part", e.rank)
}

// decodeRecord returns the card in a rank's record. Its terms must be those of this rank's own
// record, because ranks that choose at different sizes would wait for each other.
func decodeRecord(record, own []byte, rank int, component string) (card []byte, err error) {
	if !bytes.Equal(record[openRecord-termsSize:], own[openRecord-termsSize:]) {
		return nil, &recordError{rank, differentTerms, component}
	}
	n := int(record[0])
	if n == 0 || n > openRecord-termsSize {
		return nil, &recordError{rank, cannotOpen, component}
	}
	return record[1:n:n], nil
}

// join gives an instance the cards of the ranks on its node.
func join(x coll.Instance, near leaders.Group, records []byte, component string) error {
	cards := make([][]byte, near.Size)
	for i := range cards {
		from := (near.Self - i + near.Size) % near.Size
		var err error
		if cards[from], err = decodeRecord(records[i*openRecord:][:openRecord], records[:openRecord], near.Rank(from), component); err != nil {
			return err
		}
	}
	return x.Join(cards)
}

// instance returns that of a component, or nil.
func (k *State) instance(component string) coll.Instance {
	for _, x := range k.instances {
		if x.component == component {
			return x.Instance
		}
	}
	return nil
}

// closeRetryPeriod is the time between two attempts to close instances while a goroutine is in a
// collective.
const closeRetryPeriod = 10 * time.Millisecond

// CloseInstances closes the instances of a closed communicator when none of its collectives is
// active. Each event after which this may be the case calls it. The end of a collective in progress
// may not observe that the communicator is closed, so a goroutine of the session retries.
func (k *State) CloseInstances() {
	if !k.tryCloseInstances() {
		k.env.Host.Spawn(k.retryCloseInstances)
	}
}

// retryCloseInstances closes the instances after the active collective. The last attempt is at the
// end of ctx.
func (k *State) retryCloseInstances(ctx context.Context) {
	retry := time.NewTicker(closeRetryPeriod)
	defer retry.Stop()
	for !k.tryCloseInstances() {
		select {
		case <-retry.C:
		case <-ctx.Done():
			k.tryCloseInstances()
			return
		}
	}
}

// tryCloseInstances returns false if a goroutine is in a collective.
func (k *State) tryCloseInstances() bool {
	if !k.hasResources.Load() || !k.env.Host.IsClosed() || k.nonblocking.unfinishedCount.Load() > 0 {
		return true
	}
	if !k.Acquire() {
		return false
	}
	for _, x := range k.instances {
		x.Close()
	}
	k.instances = nil
	k.Release()
	return true
}

// Abort ends all waits in operations of the communicator, now and later.
func (k *State) Abort(err error) {
	k.env.PML.Abort(pml.Collective, err)
	e := k.engine()
	e.Lock()
	defer e.Release()
	if k.abortErr == nil {
		k.abortErr = err
	}
	k.env.RankResources.pendingSteps.abort(k, err)
}
