package mtltest

import (
	"context"
	"fmt"

	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/mtl"
)

func matchingCases() claims {
	return claims{
		kittest.Of("MessagesMatchInTheOrderOfTheirSends", 2, orderOfSends),
		kittest.Of("ReceivesMatchInTheOrderOfPosting", 2, orderOfPosting),
		kittest.Of("AnySourceLearnsTheSource", 3, anySource),
		kittest.Of("ReceiveFromOneSourceIgnoresOthers", 3, oneSource),
		kittest.Of("EveryBitOfIdAndTagIsMatched", 2, everyBit),
		kittest.Of("AnyTagStaysWithinItsId", 2, anyTagWithinID),
		kittest.Of("ManyReceivesOfOneIdDoNotBlockAnother", 2, manyReceives),
		kittest.Of("LateReceiversGetWhatEachSentInOrder", 4, fanIn),
	}
}

// orderOfSends mixes lengths and modes, which travel in different ways.
func orderOfSends(ctx context.Context, w *world) error {
	a, b := w.nodes[0], w.nodes[1]
	lengths := []int{8, 100000, 0, 3000, 64, 20000, 1, 300000}
	for _, early := range []bool{true, false} {
		const count = 160
		var sends, receives []*operation
		post := func() error {
			for i := range count {
				from := a
				if i%3 == 0 {
					from = nil
				}
				tag := int32(5)
				if i%5 == 0 {
					tag = mtl.AnyTag
				}
				r, err := b.receive(from, envelope{cid: 9, tag: tag}, make([]byte, 300000))
				if err != nil {
					return err
				}
				receives = append(receives, r)
			}
			return nil
		}
		if early {
			if err := post(); err != nil {
				return err
			}
		}
		for i := range count {
			m := envelope{cid: 9, tag: 5}
			if i%7 == 0 {
				m.mode = mtl.Synchronous
			}
			s, err := a.send(b, m, pattern(i, lengths[i%len(lengths)]))
			if err != nil {
				return err
			}
			sends = append(sends, s)
			if i%16 == 0 {
				w.pollAll()
			}
		}
		if !early {
			if err := post(); err != nil {
				return err
			}
		}
		if err := w.all(ctx, append(sends, receives...)...); err != nil {
			return err
		}
		for i, r := range receives {
			if err := r.check(a, 5, pattern(i, lengths[i%len(lengths)])); err != nil {
				return fmt.Errorf("message %d: %w", i, err)
			}
		}
	}
	return nil
}

func orderOfPosting(ctx context.Context, w *world) error {
	a, b := w.nodes[0], w.nodes[1]
	// Which of these each message could match, the first posted gets it.
	posted := []struct {
		from *node
		tag  int32
	}{{nil, 1}, {a, mtl.AnyTag}, {nil, mtl.AnyTag}, {a, 1}, {a, 2}}
	var receives []*operation
	for _, p := range posted {
		r, err := b.receive(p.from, envelope{cid: 2, tag: p.tag}, make([]byte, 8))
		if err != nil {
			return err
		}
		receives = append(receives, r)
	}
	for i, c := range []struct {
		tag   int32
		takes int
	}{{2, 1}, {1, 0}, {2, 2}, {2, 4}, {1, 3}} {
		s, err := a.send(b, envelope{cid: 2, tag: c.tag}, pattern(i, 8))
		if err != nil {
			return err
		}
		if err := w.all(ctx, s, receives[c.takes]); err != nil {
			return fmt.Errorf("message %d should be taken by receive %d: %w", i, c.takes, err)
		}
		if err := receives[c.takes].check(a, c.tag, pattern(i, 8)); err != nil {
			return fmt.Errorf("receive %d: %w", c.takes, err)
		}
	}
	return nil
}

func anySource(ctx context.Context, w *world) error {
	c := w.nodes[2]
	for round := range 50 {
		n := w.nodes[round%3]
		r, err := c.receive(nil, envelope{cid: 2, tag: 1}, make([]byte, 500))
		if err != nil {
			return err
		}
		sent := pattern(round, 10*round)
		s, err := n.send(c, envelope{cid: 2, tag: 1}, sent)
		if err == nil {
			err = w.all(ctx, r, s)
		}
		if err == nil {
			err = r.check(n, 1, sent)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func oneSource(ctx context.Context, w *world) error {
	a, b, c := w.nodes[0], w.nodes[1], w.nodes[2]
	r, err := c.receive(b, envelope{cid: 2, tag: mtl.AnyTag}, make([]byte, 8))
	if err != nil {
		return err
	}
	first, err := a.send(c, envelope{cid: 2, tag: 1}, pattern(1, 8))
	if err != nil {
		return err
	}
	if err := w.quiet(ctx); err != nil {
		return err
	}
	if r.ended() {
		return fmt.Errorf("a receive from rank 1 took a message of rank 0: %+v", r.Result)
	}
	second, err := b.send(c, envelope{cid: 2, tag: 1}, pattern(2, 8))
	if err != nil {
		return err
	}
	if err := w.all(ctx, second, r); err != nil {
		return err
	}
	if err := r.check(b, 1, pattern(2, 8)); err != nil {
		return err
	}
	r, err = c.receive(nil, envelope{cid: 2, tag: 1}, make([]byte, 8))
	if err == nil {
		err = w.all(ctx, first, r)
	}
	if err == nil {
		err = r.check(a, 1, pattern(1, 8))
	}
	return err
}

// everyBit posts receives that differ in one bit each, and sends to them in
// another order.
func everyBit(ctx context.Context, w *world) error {
	a, b := w.nodes[0], w.nodes[1]
	caps := a.module.Caps()
	ms := []envelope{{}}
	for bit := range caps.CIDBits {
		ms = append(ms, envelope{cid: 1 << bit, tag: 0})
	}
	for bit := range caps.TagBits {
		ms = append(ms, envelope{cid: 0, tag: 1 << bit})
	}
	ms = append(ms, envelope{cid: uint32(1<<caps.CIDBits - 1), tag: int32(1<<caps.TagBits - 1)})
	var receives []*operation
	for i, m := range ms {
		from := a
		if i%2 == 1 {
			from = nil
		}
		r, err := b.receive(from, m, make([]byte, 4))
		if err != nil {
			return err
		}
		receives = append(receives, r)
	}
	for i := range ms {
		i = len(ms) - 1 - i
		s, err := a.send(b, ms[i], pattern(i, 4))
		if err == nil {
			err = w.all(ctx, s, receives[i])
		}
		if err == nil {
			err = receives[i].check(a, ms[i].tag, pattern(i, 4))
		}
		if err != nil {
			return fmt.Errorf("id %#x, tag %#x: %w", ms[i].cid, ms[i].tag, err)
		}
	}
	return nil
}

func anyTagWithinID(ctx context.Context, w *world) error {
	a, b := w.nodes[0], w.nodes[1]
	caps := a.module.Caps()
	r, err := b.receive(nil, envelope{cid: 2, tag: mtl.AnyTag}, make([]byte, 8))
	if err != nil {
		return err
	}
	// The neighbours of the id, with the lowest and the highest tag.
	for _, m := range []envelope{{cid: 3}, {cid: 1, tag: 1<<caps.TagBits - 1}, {cid: 0}} {
		if _, err := a.send(b, m, nil); err != nil {
			return err
		}
	}
	if err := w.quiet(ctx); err != nil {
		return err
	}
	if r.ended() {
		return fmt.Errorf("a receive for id 2 took a message of another: %+v", r.Result)
	}
	s, err := a.send(b, envelope{cid: 2, tag: 77}, pattern(1, 8))
	if err == nil {
		err = w.all(ctx, s, r)
	}
	if err == nil {
		err = r.check(a, 77, pattern(1, 8))
	}
	return err
}

// manyReceives posts more receives of one id than any network takes, and has them
// served only after a message of another id has come: a barrier behind them, say.
func manyReceives(ctx context.Context, w *world) error {
	a, b := w.nodes[0], w.nodes[1]
	const count = 10000
	var ops []*operation
	for i := range count {
		r, err := b.receive([]*node{nil, a}[i%2], envelope{cid: 5, tag: int32(i % 50)}, make([]byte, 200))
		if err != nil {
			return err
		}
		ops = append(ops, r)
	}
	for i, n := range []int{8, 1 << 20, 0} {
		if err := w.exchange(ctx, a, b, envelope{cid: 6, tag: 1, mode: mtl.Mode(i % 2)}, pattern(i, n)); err != nil {
			return fmt.Errorf("a message of another id: %w", err)
		}
	}
	for i := range count {
		s, err := a.send(b, envelope{cid: 5, tag: int32(i % 50)}, pattern(i, 8+i%100))
		if err != nil {
			return err
		}
		ops = append(ops, s)
	}
	if err := w.all(ctx, ops...); err != nil {
		return err
	}
	for i, r := range ops[:count] {
		if err := r.check(a, int32(i%50), pattern(i, 8+i%100)); err != nil {
			return fmt.Errorf("receive %d: %w", i, err)
		}
	}
	return nil
}

func fanIn(ctx context.Context, w *world) error {
	const each = 60
	root := w.nodes[3]
	var ops []*operation
	for i := range each {
		for _, n := range w.nodes[:3] {
			s, err := n.send(root, envelope{cid: 8, tag: 3}, pattern(i*4+n.rank, 5+i*40))
			if err != nil {
				return err
			}
			ops = append(ops, s)
		}
	}
	next := make([]int, 3)
	for range 3 * each {
		r, err := root.receive(nil, envelope{cid: 8, tag: 3}, make([]byte, 5+each*40))
		if err != nil {
			return err
		}
		if err := w.all(ctx, r); err != nil {
			return err
		}
		if r.Source < 0 || r.Source > 2 {
			return fmt.Errorf("a message of rank %d", r.Source)
		}
		i := next[r.Source]
		next[r.Source]++
		if err := r.check(w.nodes[r.Source], 3, pattern(i*4+int(r.Source), 5+i*40)); err != nil {
			return fmt.Errorf("message %d of rank %d: %w", i, r.Source, err)
		}
	}
	return w.all(ctx, ops...)
}
