package run

import (
	"bytes"
	"context"
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/internal/text"
)

// With coll.check, ranks compare their calls before each operation. The records are text, so that
// errors can show the differences.

// recordSize is the length of a text, in bytes.
const recordSize = 128

// callRecord returns the text of a call with all values that must be equal in all ranks. In
// Scatter, Gatherv, Scatterv, Alltoallv and neighborhood operations a rank does not know the block
// lengths of others. Those are checked when blocks arrive.
func callRecord(x *Call, choice *coll.Choice) []byte {
	var b strings.Builder
	b.WriteString(x.Op.String())
	switch x.Op {
	case coll.Barrier, coll.Gatherv, coll.Scatter, coll.Scatterv, coll.Alltoallv,
		coll.NeighborAllgather, coll.NeighborAllgatherv, coll.NeighborAlltoall, coll.NeighborAlltoallv:
	case coll.Allgatherv, coll.ReduceScatter:
		counts := x.RecvBlocks.Counts
		if x.Op == coll.ReduceScatter {
			counts = x.SendBlocks.Counts
		}
		h := fnv.New32a()
		for _, n := range counts {
			fmt.Fprint(h, n*x.Args.ElemSize, " ")
		}
		fmt.Fprintf(&b, " of %d bytes in blocks %08x", x.Args.Size, h.Sum32())
	default:
		fmt.Fprintf(&b, " of %d bytes", x.Args.Size)
	}
	switch x.Op {
	case coll.Bcast, coll.Reduce, coll.Gather, coll.Gatherv, coll.Scatter, coll.Scatterv:
		fmt.Fprintf(&b, ", root %d", x.Args.Root)
	}
	if x.Reducer.Apply != nil {
		name := x.Reducer.Name
		if name == "" {
			name = "an operation of the program's"
		}
		fmt.Fprintf(&b, ", %s of elements of %d bytes", name, x.Args.ElemSize)
		if x.Args.IsOrdered {
			b.WriteString(" in order")
		}
	}
	fmt.Fprintf(&b, ", by %s %s", choice.Component, choice.Algorithm.Name)
	text := make([]byte, recordSize)
	copy(text, b.String())
	return text
}

// MismatchError is the error of calls that do not match. All ranks return it, and no data was
// sent, so that later collectives work.
type MismatchError struct{ text string }

func (d *MismatchError) Error() string { return d.text }

// compared returns the error of records that differ, or nil.
func compared(all []byte) error {
	var texts []string
	ranks := map[string][]int{}
	for rank := 0; len(all) >= recordSize; rank, all = rank+1, all[recordSize:] {
		record := string(bytes.TrimRight(all[:recordSize], "\x00"))
		if ranks[record] == nil {
			texts = append(texts, record)
		}
		ranks[record] = append(ranks[record], rank)
	}
	if len(texts) < 2 {
		return nil
	}
	var b strings.Builder
	b.WriteString("members called collectives that don't match")
	for i, record := range texts {
		const most = 4 // Listed texts.
		if i == most {
			fmt.Fprintf(&b, "; and %d others", len(texts)-most)
			break
		}
		fmt.Fprintf(&b, "; %s: %q", text.Ranks(ranks[record]), record)
	}
	return &MismatchError{b.String()}
}

// recordExchange returns the call that exchanges the records.
func recordExchange(mine []byte, ranks int) *Call {
	x := &Call{Op: coll.Allgather, In: mine, Out: make([]byte, recordSize*ranks)}
	x.SetBlockSize(recordSize)
	return x
}

// compare is the check of a blocking call with this record. Called inside Do.
func (k *State) compare(ctx context.Context, mine []byte) error {
	k.comparesCalls = false
	defer func() { k.comparesCalls = true }()
	records := recordExchange(mine, k.env.Size)
	if err := k.Inline(ctx, records); err != nil {
		return fmt.Errorf("coll.check: %w", err)
	}
	return compared(records.Out)
}

// CompareInit is the check of the initialization of a persistent operation. Called inside Do.
func (k *State) CompareInit(ctx context.Context, x *Call) error {
	if k.resources == nil {
		if err := k.prepare(); err != nil {
			return err
		}
	}
	if !k.comparesCalls {
		return nil
	}
	choice, err := k.algorithmFor(x)
	if err != nil {
		return err
	}
	text := make([]byte, recordSize)
	copy(text[copy(text, "persistent "):], callRecord(x, choice))
	return k.compare(ctx, text)
}

// afterComparison is the part of a nonblocking operation after the comparison of records.
type afterComparison struct {
	schedule coll.Schedule
	call     coll.Call
	tag      int
}

// compareFirst makes an operation that is ready to begin exchange records first. Inside Start.
func (o *Operation) compareFirst(records *Call, exchange *coll.Choice) {
	k := o.collState
	o.comparison = &afterComparison{o.schedule, o.call, 0}
	o.comparison.call.Sequence = k.operationCount // Not in one statement with nextTag, which changes it.
	o.comparison.tag = k.nextTag()
	o.algorithm, o.schedule = nil, coll.Schedule{}
	k.plan(&o.schedule, new(coll.Args), exchange.Algorithm, records)
	o.call = coll.Call{Sequence: o.call.Sequence, Buffers: coll.Buffers{In: records.In, Out: records.Out, Temp: make([]byte, o.schedule.Temp, max(64, o.schedule.Temp))}}
}

// startCompared compares the received records, and starts the operation. The lock is held.
func (o *Operation) startCompared() {
	if err := compared(o.call.Out); err != nil {
		o.firstErr, o.isReported = fmt.Errorf("i%v: %w", o.op, err), true
		return
	}
	t := o.comparison
	o.comparison, o.schedule, o.call, o.tag = nil, t.schedule, t.call, t.tag
	o.execution.Begin(&o.schedule)
}
