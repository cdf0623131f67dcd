package mpi

import (
	"bytes"
	"context"
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/ferrympi/ferry/coll"
)

// With coll.check, members compare their calls before each operation. The records are text, so that errors can show the differences.

// recordSize is the length of a text, in bytes.
const recordSize = 128

// callRecord returns the text of a call with all values that must be equal in all members. In Scatter, Gatherv, Scatterv, Alltoallv and neighborhood
// operations a member does not know the block lengths of others. Those are checked when blocks arrive.
func callRecord(x *call, choice *coll.Choice) []byte {
	var b strings.Builder
	b.WriteString(x.op.String())
	switch x.op {
	case coll.Barrier, coll.Gatherv, coll.Scatter, coll.Scatterv, coll.Alltoallv,
		coll.NeighborAllgather, coll.NeighborAllgatherv, coll.NeighborAlltoall, coll.NeighborAlltoallv:
	case coll.Allgatherv, coll.ReduceScatter:
		counts := x.recv.counts
		if x.op == coll.ReduceScatter {
			counts = x.send.counts
		}
		h := fnv.New32a()
		for _, n := range counts {
			fmt.Fprint(h, n*x.args.ElemSize, " ")
		}
		fmt.Fprintf(&b, " of %d bytes in blocks %08x", x.args.Size, h.Sum32())
	default:
		fmt.Fprintf(&b, " of %d bytes", x.args.Size)
	}
	switch x.op {
	case coll.Bcast, coll.Reduce, coll.Gather, coll.Gatherv, coll.Scatter, coll.Scatterv:
		fmt.Fprintf(&b, ", root %d", x.args.Root)
	}
	if x.reducer.Apply != nil {
		name := x.reducer.Name
		if name == "" {
			name = "an operation of the program's"
		}
		fmt.Fprintf(&b, ", %s of elements of %d bytes", name, x.args.ElemSize)
		if x.args.IsOrdered {
			b.WriteString(" in order")
		}
	}
	fmt.Fprintf(&b, ", by %s %s", choice.Component, choice.Algorithm.Name)
	text := make([]byte, recordSize)
	copy(text, b.String())
	return text
}

// mismatchError is the error of calls that do not match. All members return it, and no data was sent, so that later collectives work.
type mismatchError struct{ text string }

func (d *mismatchError) Error() string { return d.text }

// compared returns the error of records that differ, or nil.
func compared(all []byte) error {
	var texts []string
	ranks := map[string][]int{}
	for rank := 0; len(all) >= recordSize; rank, all = rank+1, all[recordSize:] {
		text := string(bytes.TrimRight(all[:recordSize], "\x00"))
		if ranks[text] == nil {
			texts = append(texts, text)
		}
		ranks[text] = append(ranks[text], rank)
	}
	if len(texts) < 2 {
		return nil
	}
	var b strings.Builder
	b.WriteString("members called collectives that don't match")
	for i, text := range texts {
		const most = 4 // Listed texts.
		if i == most {
			fmt.Fprintf(&b, "; and %d others", len(texts)-most)
			break
		}
		fmt.Fprintf(&b, "; %s: %q", ranksText(ranks[text]), text)
	}
	return &mismatchError{b.String()}
}

// ranksText is "rank 1", or "ranks 0, 2 and 5 others".
func ranksText(ranks []int) string {
	if len(ranks) == 1 {
		return fmt.Sprintf("rank %d", ranks[0])
	}
	const most = 8 // Listed ranks.
	var b strings.Builder
	for i, r := range ranks[:min(len(ranks), most)] {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprint(&b, r)
	}
	if more := len(ranks) - most; more > 0 {
		fmt.Fprintf(&b, " and %d others", more)
	}
	return "ranks " + b.String()
}

// recordExchange returns the call that exchanges the records.
func recordExchange(mine []byte, members int) *call {
	x := &call{op: coll.Allgather, in: mine, out: make([]byte, recordSize*members)}
	x.setBlockSize(recordSize)
	return x
}

// compare is the check of a blocking call with this record. Called inside do.
func (k *collective) compare(ctx context.Context, mine []byte) error {
	k.comparesCalls = false
	defer func() { k.comparesCalls = true }()
	records := recordExchange(mine, k.comm().size)
	if err := k.inline(ctx, records); err != nil {
		return fmt.Errorf("coll.check: %w", err)
	}
	return compared(records.out)
}

// compareInit is the check of the initialization of a persistent operation. Called inside do.
func (k *collective) compareInit(ctx context.Context, x *call) error {
	if k.collectiveResources == nil {
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

// compareFirst has an operation that is ready to begin exchange records before. Inside
// start.
func (o *operation) compareFirst(x *call, choice *coll.Choice) error {
	k := o.k
	records := recordExchange(callRecord(x, choice), k.comm().size)
	how, err := k.plainAlgorithmFor(records)
	if err != nil {
		return err
	}
	o.comparison = &afterComparison{o.schedule, o.call, 0}
	o.comparison.call.Sequence = k.operationCount // Not in one statement with nextTag, which changes it.
	o.comparison.tag = k.nextTag()
	o.algorithm, o.schedule = nil, coll.Schedule{}
	k.plan(&o.schedule, new(coll.Args), how.Algorithm, records)
	o.call = coll.Call{Sequence: o.call.Sequence, Buffers: coll.Buffers{In: records.in, Out: records.out, Temp: make([]byte, o.schedule.Temp, max(64, o.schedule.Temp))}}
	return nil
}

// startCompared compares the received records, and starts the operation. The lock is held.
func (o *operation) startCompared() {
	if err := compared(o.call.Out); err != nil {
		o.err, o.isReported = fmt.Errorf("i%v: %w", o.op, err), true
		return
	}
	t := o.comparison
	o.comparison, o.schedule, o.call, o.tag = nil, t.schedule, t.call, t.tag
	o.run.Begin(&o.schedule)
}
