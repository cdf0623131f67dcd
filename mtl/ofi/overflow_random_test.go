package ofi_test

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ferrympi/ferry/mtl"
)

// receiverModel is a receiver over a provider with little space, two senders, and a model of matching with plain lists (MPI-4.1 section 3.5).
type receiverModel struct {
	*rapid.T
	// The receiver is the first.
	all []*member
	cid uint32
	// The number of the last message.
	last uint64
	// Receives without a message.
	posted []*modelOp
	// Messages without a receive.
	waiting []*modelOp
	// Probes with a message.
	claimed []*modelOp
	// Unacked synchronous messages.
	unanswered []*modelOp
}

// modelOp is a receive, a message, or a probe with its claimed message.
type modelOp struct {
	*onceOp
	source, tag int32
	buf         []byte
	// The match of a receive or a probe.
	message     *modelOp
	number      uint64 // Of a message.
	synchronous bool
	// The sender no longer holds it.
	left bool
}

func (x *modelOp) matches(m *modelOp) bool {
	return (x.source == mtl.AnySource || x.source == m.source) && (x.tag == mtl.AnyTag || x.tag == m.tag)
}

// poll polls until all messages in flight have arrived.
func (w *receiverModel) poll() {
	for range 12 {
		for _, m := range w.all {
			m.m.Poll()
		}
	}
}

// ends waits for the operations that must end now, and checks that no other has ended.
func (w *receiverModel) ends(all ...*modelOp) {
	w.poll()
	for end := time.Now().Add(10 * time.Second); slices.ContainsFunc(all, func(x *modelOp) bool { return x.completions == 0 }); w.poll() {
		if time.Now().After(end) {
			w.Fatal("what has its message does not end")
		}
	}
	for _, x := range all {
		if x.Err != nil {
			w.Fatal(x.Err)
		}
	}
	for _, x := range w.posted {
		if x.completions > 0 {
			w.Fatalf("a receive from %d with tag %d ended, and there is no message for it: %+v", x.source, x.tag, x.Result)
		}
	}
	for _, x := range w.unanswered {
		if x.completions > 0 {
			w.Fatalf("synchronous message %d ended, and no receive has it", x.number)
		}
	}
}

func (w *receiverModel) envelope(source, tag int32) mtl.Envelope {
	return mtl.Envelope{CID: w.cid, Source: source, Tag: tag}
}

// from returns the endpoint of a rank at the receiver.
func (w *receiverModel) from(source int32) mtl.Endpoint {
	if source == mtl.AnySource {
		return mtl.NoEndpoint
	}
	return w.all[0].to(w.all[source])
}

// got checks that a receive got its message.
func (w *receiverModel) got(x *modelOp) {
	m := x.message
	m.left = true
	over := []*modelOp{x}
	if m.synchronous { // The oldest message with the tag is acknowledged. It may be a claimed one.
		i := slices.IndexFunc(w.unanswered, func(o *modelOp) bool { return o.source == m.source && o.tag == m.tag })
		if sent := w.unanswered[i]; sent.left {
			over = append(over, sent)
		}
		w.unanswered = slices.Delete(w.unanswered, i, i+1)
	}
	if !slices.Contains(w.unanswered, m) {
		over = append(over, m)
	}
	w.ends(over...)
	if n := binary.LittleEndian.Uint64(x.buf); n != m.number || x.Source != m.source || x.Tag != m.tag || x.Bytes != int64(len(m.buf)) {
		w.Fatalf("a receive from %d with tag %d got message %d, and %d is for it: %+v", x.source, x.tag, n, m.number, x.Result)
	}
}

func (w *receiverModel) post(source, tag int32) *modelOp {
	x := &modelOp{onceOp: newOnceOp(), source: source, tag: tag, buf: make([]byte, longMessage)}
	if err := w.all[0].m.Recv(&x.Op, w.from(source), w.envelope(source, tag), x.buf); err != nil {
		w.Fatal(err)
	}
	return x
}

func (w *receiverModel) receive(source, tag int32) {
	x := w.post(source, tag)
	i := slices.IndexFunc(w.waiting, x.matches)
	if i < 0 {
		w.posted = append(w.posted, x)
		w.ends()
		return
	}
	x.message = w.waiting[i]
	w.waiting = slices.Delete(w.waiting, i, i+1)
	w.got(x)
}

// A message of longMessage bytes stays with its sender. The sender has space for mostLong of them in addition to short ones.
const (
	longMessage = 5000
	mostLong    = 6
)

// long returns the number of long messages of a rank that were not received.
func (w *receiverModel) long(source int32) (n int) {
	for _, x := range w.waiting {
		if x.source == source && len(x.buf) == longMessage {
			n++
		}
	}
	for _, x := range w.claimed {
		if m := x.message; m.source == source && len(m.buf) == longMessage {
			n++
		}
	}
	return n
}

// send sends a message. It calls meanwhile, if not nil, while the message is in flight.
func (w *receiverModel) send(source, tag int32, n int, synchronous bool, meanwhile func(m *modelOp)) {
	if n == longMessage && w.long(source) == mostLong {
		n = 8
	}
	w.last++
	x := &modelOp{onceOp: newOnceOp(), source: source, tag: tag, buf: make([]byte, n), number: w.last, synchronous: synchronous, left: n < longMessage}
	binary.LittleEndian.PutUint64(x.buf, x.number)
	mode := mtl.Standard
	if synchronous {
		mode = mtl.Synchronous
		w.unanswered = append(w.unanswered, x)
	}
	from := w.all[source]
	done, err := from.m.Send(&x.Op, from.to(w.all[0]), w.envelope(source, tag), x.buf, mode)
	if err != nil {
		w.Fatal(err)
	}
	if done {
		x.completions++
	}
	if meanwhile != nil {
		meanwhile(x)
	}
	i := slices.IndexFunc(w.posted, func(r *modelOp) bool { return r.matches(x) })
	if i < 0 {
		w.waiting = append(w.waiting, x)
		w.ends()
		return
	}
	r := w.posted[i]
	r.message = x
	w.posted = slices.Delete(w.posted, i, i+1)
	w.got(r)
}

type probeOp struct {
	source, tag int32
	claim       bool
}

// probe runs several probes at once. They must have the same results as in sequence.
func (w *receiverModel) probe(probes ...probeOp) {
	all := make([]*modelOp, len(probes))
	for i, p := range probes {
		x := &modelOp{onceOp: newOnceOp(), source: p.source, tag: p.tag}
		if err := w.all[0].m.Probe(&x.Op, w.from(p.source), w.envelope(p.source, p.tag), p.claim); err != nil {
			w.Fatal(err)
		}
		all[i] = x
	}
	w.ends(all...)
	for i, x := range all {
		w.found(x, probes[i].claim)
	}
}

// found checks the result of a probe.
func (w *receiverModel) found(x *modelOp, claim bool) {
	source, tag := x.source, x.tag
	i := slices.IndexFunc(w.waiting, x.matches)
	if x.Found != (i >= 0) {
		w.Fatalf("a probe from %d with tag %d: %+v, and message %d of %d is for it", source, tag, x.Result, i+1, len(w.waiting))
	}
	if i < 0 {
		return
	}
	m := w.waiting[i]
	if x.Source != m.source || x.Tag != m.tag || x.Bytes != int64(len(m.buf)) {
		w.Fatalf("a probe from %d with tag %d: %+v, and the message has source %d, tag %d, %d bytes", source, tag, x.Result, m.source, m.tag, len(m.buf))
	}
	if claim {
		x.message = m
		w.waiting = slices.Delete(w.waiting, i, i+1)
		w.claimed = append(w.claimed, x)
	}
}

func (w *receiverModel) receiveClaimed(i int) {
	x := w.claimed[i]
	w.claimed = slices.Delete(w.claimed, i, i+1)
	x.completions, x.buf = 0, make([]byte, longMessage)
	if err := w.all[0].m.RecvClaimed(&x.Op, x.buf); err != nil {
		w.Fatal(err)
	}
	w.got(x)
}

func (w *receiverModel) cancel(i int) {
	x := w.withdraw(i)
	w.ends(x)
	w.wasCanceled(x)
}

// withdraw starts to cancel a receive.
func (w *receiverModel) withdraw(i int) *modelOp {
	x := w.posted[i]
	w.posted = slices.Delete(w.posted, i, i+1)
	w.all[0].m.Cancel(&x.Op)
	return x
}

func (w *receiverModel) wasCanceled(x *modelOp) {
	if x.completions != 1 || !x.Canceled {
		w.Fatalf("a receive without a message was canceled, and says %+v", x.Result)
	}
}

// sendWhile sends a message while receives that do not match it are canceled and one that matches is posted, some polls later. Receives that get space, or
// are posted during a peek, must not overtake those of the peek.
func (w *receiverModel) sendWhile(source, tag int32, n int, synchronous bool, polls, cancels int) {
	var all []*modelOp
	w.send(source, tag, n, synchronous, func(m *modelOp) {
		for range polls {
			w.all[source].m.Poll()
			w.all[0].m.Poll()
		}
		for i := 0; i < len(w.posted) && len(all) < cancels; i++ {
			if !w.posted[i].matches(m) {
				all = append(all, w.withdraw(i))
				i--
			}
		}
		if !slices.ContainsFunc(w.waiting, (&modelOp{source: source, tag: tag}).matches) {
			w.posted = append(w.posted, w.post(source, tag))
		}
	})
	for _, x := range all {
		w.wasCanceled(x)
	}
}

// Random sends, receives, probes and cancels have the same results as in a model with plain lists. Most of them wait in
// overflow queues.
func TestOverflow_RandomOperations_MatchAsSpecified(t *testing.T) {
	for _, c := range [][]string{{"data"}, {"packed"}, {"data", "peeks=3"}, {"packed", "peeks=2"}, {"data", "peeks=30"}} {
		t.Run(strings.Join(c, ","), func(t *testing.T) {
			all, cid := openScarce(t, 3, c[0], c[1:]...), uint32(1)
			for _, m := range all[1:] { // The first contact takes time.
				if err := errors.Join(exchange(t, m, all[0], 8), exchange(t, all[0], m, 8)); err != nil {
					t.Fatal(err)
				}
			}
			rapid.Check(t, func(t *rapid.T) {
				cid++
				w := &receiverModel{T: t, all: all, cid: cid}
				any := rapid.SampledFrom([]int32{mtl.AnySource, 1, 2})
				sender := rapid.Int32Range(1, 2)
				wild := rapid.SampledFrom([]int32{mtl.AnyTag, 0, 1, 2, 3, 4, 5, 6})
				tag := rapid.Int32Range(0, 6)
				length := rapid.SampledFrom([]int{8, 64, 200, longMessage})
				op, left := 0, 0
				for range 80 {
					if left--; left <= 0 {
						op, left = rapid.IntRange(0, 7).Draw(t, "op"), rapid.IntRange(1, 30).Draw(t, "burst")
					}
					switch op {
					case 0, 1:
						w.receive(any.Draw(t, "source"), wild.Draw(t, "tag"))
					case 2, 3:
						w.send(sender.Draw(t, "sender"), tag.Draw(t, "with"), length.Draw(t, "bytes"), rapid.Bool().Draw(t, "synchronous"), nil)
					case 4:
						if len(w.posted) > 0 {
							w.cancel(rapid.IntRange(0, len(w.posted)-1).Draw(t, "cancel"))
						}
					case 5:
						probes := make([]probeOp, rapid.IntRange(1, 4).Draw(t, "probes"))
						for i := range probes {
							probes[i] = probeOp{any.Draw(t, "source"), wild.Draw(t, "tag"), rapid.Bool().Draw(t, "claim")}
						}
						w.probe(probes...)
					case 6:
						w.sendWhile(sender.Draw(t, "sender"), tag.Draw(t, "with"), length.Draw(t, "bytes"), rapid.Bool().Draw(t, "synchronous"), rapid.IntRange(0, 5).Draw(t, "polls"), rapid.SampledFrom([]int{0, 3, 100}).Draw(t, "cancels"))
					case 7:
						if len(w.claimed) > 0 {
							w.receiveClaimed(rapid.IntRange(0, len(w.claimed)-1).Draw(t, "claimed"))
						}
					}
				}
				for len(w.posted) > 0 {
					w.cancel(len(w.posted) / 2)
				}
				for len(w.claimed) > 0 {
					w.receiveClaimed(0)
				}
				for len(w.waiting) > 0 {
					w.receive(mtl.AnySource, mtl.AnyTag)
				}
				w.probe(probeOp{mtl.AnySource, mtl.AnyTag, true})
			})
		})
	}
}
