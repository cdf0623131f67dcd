package pmltest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

// expected returns the message that each receive of a class matches, by index. Messages are in the order of
// their sends, and receives in the order of their posting. Each receive matches the first message that it
// can (MPI-4.1 section 3.5), at any
// timing.
func (k *PlanClass) expected() []*PlanMessage {
	order := func(key func(*PlanMessage) int, blocking bool) []int {
		at := make([]int, len(k.Messages))
		for i := range at {
			at[i] = i
		}
		if !blocking { // Blocking operations have the order of the plan.
			slices.SortStableFunc(at, func(a, b int) int { return cmp.Compare(key(&k.Messages[a]), key(&k.Messages[b])) })
		}
		return at
	}
	sends := order(func(m *PlanMessage) int { return m.SendKey }, k.SendsBlock)
	recvs := order(func(m *PlanMessage) int { return m.RecvKey }, k.RecvsBlock)
	want := make([]*PlanMessage, len(k.Messages))
	for _, r := range recvs {
		i := slices.IndexFunc(sends, func(s int) bool { return k.anyTag() || k.Messages[s].Tag == k.Messages[r].Tag })
		want[r] = &k.Messages[sends[i]]
		sends = slices.Delete(sends, i, i+1)
	}
	return want
}

func (k *PlanClass) anyTag() bool { return k.Style == AnyTagOf || k.Style == AnyOf }

// pattern returns source and tag of a receive.
func (k *PlanClass) pattern(m *PlanMessage) (src, tag int) {
	src, tag = k.From, m.Tag
	if k.Style == AnySourceOf || k.Style == AnyOf {
		src = pml.AnySource
	}
	if k.anyTag() {
		tag = pml.AnyTag
	}
	return src, tag
}

// class returns this rank's operations of a class, the started and the blocking ones.
func (r *player) class(k *PlanClass) (first, blocking []step) {
	members := r.plan.Comms[k.Comm].Members
	want := k.expected()
	for i := range k.Messages {
		m := &k.Messages[i]
		if members[k.From] == r.worldRank {
			name := func() string { return fmt.Sprintf("communicator %d: send of message %d", k.Comm, m.ID) }
			if k.SendsBlock {
				blocking = append(blocking, step{m.ID, func() error { return r.send(k, m) }, name})
			} else {
				first = append(first, step{m.SendKey, func() error { return r.isend(k, m) }, name})
			}
		}
		if members[k.To] == r.worldRank {
			name := func() string { return fmt.Sprintf("communicator %d: receive in place of message %d", k.Comm, m.ID) }
			if k.RecvsBlock {
				blocking = append(blocking, step{m.ID, func() error { return r.recv(k, m, want[i]) }, name})
			} else {
				first = append(first, step{m.RecvKey, func() error { return r.irecv(k, m, want[i]) }, name})
			}
		}
	}
	return first, blocking
}

// strided is a Layout of count blocks of block bytes, stride apart.
type strided struct{ count, block, stride int }

func (s strided) Size() int64   { return int64(s.count * s.block) }
func (s strided) Extent() int64 { return int64((s.count-1)*s.stride + s.block) }

func (s strided) Pack(dst, buf []byte, offset int64) {
	s.each(len(dst), offset, func(at, n, k int) { copy(dst[k:k+n], buf[at:at+n]) })
}

func (s strided) Unpack(buf, src []byte, offset int64) {
	s.each(len(src), offset, func(at, n, k int) { copy(buf[at:at+n], src[k:k+n]) })
}

// each covers n bytes of the message from offset. f gets the offset in the buffer, the length, and the offset
// in the piece.
func (s strided) each(n int, offset int64, f func(at, n, k int)) {
	for k := 0; k < n; {
		pos := int(offset) + k
		in := pos % s.block
		step := min(s.block-in, n-k)
		f(pos/s.block*s.stride+in, step, k)
		k += step
	}
}

// layoutOf returns a layout of n bytes with gaps. n is not 0.
func layoutOf(n int) strided {
	block := 64
	for n%block != 0 {
		block /= 2
	}
	return strided{count: n / block, block: block, stride: block + 3}
}

// outgoing returns the buffer of a send, and a function that frees it.
func (r *player) outgoing(m *PlanMessage) (b pml.Buffer, free func() error) {
	free = func() error { return nil }
	contents := data(m.ID, m.Size)
	switch {
	case m.Size == 0:
	case m.IsStrided:
		l := layoutOf(m.Size)
		b := pml.Buffer{Bytes: make([]byte, l.Extent()), Form: &pml.Form{Layout: l}}
		l.Unpack(b.Bytes, contents, 0)
		return b, free
	case m.IsRegistered:
		a, ok := framework.As[pml.Allocator](r.w.Procs[r.worldRank].Module)
		if !ok {
			break
		}
		mem, err := a.Allocate(m.Size)
		if err != nil { // This stack allocates no memory.
			break
		}
		copy(mem, contents)
		return pml.Buffer{Bytes: mem[:m.Size], Form: pml.InRegistered}, func() error { return a.Free(mem) }
	}
	return buffer(contents), free
}

// incoming returns the buffer of a receive, and a function that returns the received message and the bytes
// behind it.
func (m *PlanMessage) incoming(want *PlanMessage) (b pml.Buffer, room int, contents func() []byte) {
	const guard = 16
	if m.IsStrided && m.Cut == 0 && want.Size > 0 {
		l := layoutOf(want.Size)
		mem := bytes.Repeat([]byte{0xee}, int(l.Extent()))
		return pml.Buffer{Bytes: mem, Form: &pml.Form{Layout: l}}, want.Size, func() []byte {
			out := make([]byte, want.Size)
			l.Pack(out, mem, 0)
			for i := range mem { // The bytes that remain are the gaps.
				if i%l.stride >= l.block {
					out = append(out, mem[i])
				}
			}
			return out
		}
	}
	room = want.Size
	if m.Cut > 0 {
		room = max(0, want.Size-m.Cut)
	}
	mem := bytes.Repeat([]byte{0xee}, room+guard)
	return buffer(mem[:room]), room, func() []byte { return mem }
}

func (r *player) send(k *PlanClass, m *PlanMessage) error {
	b, free := r.outgoing(m)
	return errors.Join(r.comms[k.Comm].Send(r.ctx, b, k.To, m.Tag, p2p, m.Mode), free())
}

func (r *player) isend(k *PlanClass, m *PlanMessage) error {
	b, free := r.outgoing(m)
	op, err := started(r.comms[k.Comm].Isend(b, k.To, m.Tag, p2p, m.Mode))
	if err == nil {
		r.startedOps = append(r.startedOps, &operation{op, m.SendWait, func(st pml.Status, err error) error {
			return errors.Join(sent(m.ID, st, err), free())
		}})
	}
	return err
}

func (r *player) irecv(k *PlanClass, m, want *PlanMessage) error {
	b, room, contents := m.incoming(want)
	src, tag := k.pattern(m)
	op, err := started(r.comms[k.Comm].Irecv(b, src, tag, p2p))
	if err == nil {
		r.startedOps = append(r.startedOps, &operation{op, m.RecvWait, func(st pml.Status, err error) error {
			return k.got(want, contents(), room, st, err)
		}})
	}
	return err
}

// recv is a blocking receive with its probe.
func (r *player) recv(k *PlanClass, m, want *PlanMessage) error {
	c := r.comms[k.Comm]
	b, room, contents := m.incoming(want)
	src, tag := k.pattern(m)
	var seen, st pml.Status
	var taken pml.Claimed
	var err error
	switch m.Probe {
	case NoProbe:
	case Probe:
		seen, err = c.Probe(r.ctx, src, tag, p2p)
	case Mprobe, MprobeIrecv:
		taken, seen, err = c.Mprobe(r.ctx, src, tag, p2p)
	case Iprobe, Improbe:
		for ok := false; !ok && err == nil; {
			if m.Probe == Iprobe {
				seen, ok, err = c.Iprobe(src, tag, p2p)
			} else {
				taken, seen, ok, err = c.Improbe(src, tag, p2p)
			}
			if r.ctx.Err() != nil {
				return r.ctx.Err()
			}
			runtime.Gosched()
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", probeNames[m.Probe], err)
	}
	if m.Probe != NoProbe && (seen.Source != k.From || seen.Tag != want.Tag || seen.Bytes != want.Size) {
		return fmt.Errorf("%s of message %d (from %d, tag %d, %d bytes): %+v", probeNames[m.Probe], want.ID, k.From, want.Tag, want.Size, seen)
	}
	switch {
	case m.Probe == MprobeIrecv:
		var op pending
		if op, err = started(taken.Irecv(b)); err != nil {
			return err
		}
		st, err = op.wait(r.ctx)
	case taken != nil:
		st, err = taken.Recv(r.ctx, b)
	default:
		st, err = c.Recv(r.ctx, b, src, tag, p2p)
	}
	return k.got(want, contents(), room, st, err)
}
