package soak

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"time"
)

// A storm is a random program with one fault. Everything but the timing is derived from the kind of
// the fault, the stack and the seed, by ranks and harness alike.
type storm struct {
	// One of kill, close, shortage and cut.
	kind string
	// A key of stacks.
	stack string
	seed  uint64

	ranks int
	// Communicators of streams, each with all ranks. The first one is the world.
	comms   int
	streams []stream
	// Number of steps in each rank's streams and collectives.
	steps       []int
	collectives []collective
	fault       fault
	env         []string
	// Whether the ranks are on two nodes.
	hasTwoNodes bool
	// Whether the small directory for segments has no fallback.
	noFallback bool
}

// stream is the messages from one rank to another on one communicator in order.
type stream struct {
	comm, from, to int
	// Whether they are received from any source.
	isAnySource bool
	messages    []envelope
	// Limit of pending sends.
	sendWindow int
	// Number of receives that are posted ahead.
	recvWindow int
	startDelay time.Duration
}

// envelope is one message with its treatment at both ends.
type envelope struct {
	size, tag int
	send      sendMode
	recv      recvMethod
	// Number of later messages that are received first, or never.
	receivedAfter int
	// Whether the buffer is from AllocMem.
	isRegistered bool
	pause        time.Duration
}

const never = -1

type sendMode int

const (
	send sendMode = iota
	ssend
	isend // The first nonblocking one.
	issend
	bsend
	persistentSend
	sendModes
)

var sendNames = [...]string{"send", "ssend", "isend", "issend", "bsend", "persistent send"}

type recvMethod int

const (
	recvPosted recvMethod = iota // Irecv with a later Wait.
	recv
	recvAnyTag
	iprobeRecv
	mprobeRecv
	improbeIrecv
	persistentRecv
	recvMethods
)

var recvNames = [...]string{"irecv", "recv", "recv of any tag", "iprobe", "mprobe", "improbe", "persistent receive"}

// collective is a call of all ranks in the same order, on a communicator of its own.
type collective struct {
	op   string
	size int
	root int
}

// collectives are the operations. Not all storms have the last two.
var collectives = []string{"barrier", "bcast", "allreduce", "dup", "split", "split off"}

// fault is the fault of a storm.
type fault struct {
	// Faulty rank, or everywhere.
	rank    int
	variant string
	// Fraction of the rank's steps before the fault.
	fraction float64
	// Whether the fault counts from the start of the process instead of a step.
	fromStart bool
	delay     time.Duration
	// Remaining bytes or descriptors.
	remaining int64
}

const everywhere = -1

// Tags. Messages that are received out of order or never have separate ones.
const (
	plainTags   = 3
	wildTag     = 10
	farewellTag = 11
	lateSendTag = 12 // Never received.
	lateRecvTag = 13 // Never sent.
	ownTag      = 100
)

// messageLengths are around the limits of cells, frames, eager sends, single copies and libfabric's
// own rendezvous (16 KiB).
var messageLengths = [...]struct{ least, most, weight int }{
	{1, 40, 20}, {41, 64, 8}, {65, 4000, 16}, {8000, 8400, 10}, {15_900, 16_400, 12}, {16_500, 20_000, 12},
	{32_500, 33_000, 8}, {65_000, 70_000, 6}, {100_000, 300_000, 5}, {1<<20 - 64, 1 << 20, 3},
}

// stacks maps names to environments.
var stacks = map[string][]string{
	"ob1+shm": nil,
	"ob1+tcp": overSockets,
	"cm+shm":  {"FERRY_PML=cm", "FERRY_MTL_OFI_PROVIDER_INCLUDE=tcp;ofi_rxm"},
	"cm":      {"FERRY_PML=cm", "FERRY_MTL_OFI_PROVIDER_INCLUDE=tcp;ofi_rxm", "FERRY_PML_CM_SHARED_MEMORY=false"},
}

// String returns the argument of parseStorm.
func (s *storm) String() string { return fmt.Sprintf("%s/%s/%d", s.kind, s.stack, s.seed) }

func parseStorm(text string) *storm {
	parts := strings.Split(text, "/")
	var seed uint64
	fmt.Sscan(parts[2], &seed)
	return newStorm(parts[0], parts[1], seed)
}

// randomDrawer draws the elements of a storm.
type randomDrawer struct{ *rand.Rand }

func (d randomDrawer) one(in int) bool { return d.IntN(in) == 0 }

func (d randomDrawer) upTo(t time.Duration) time.Duration { return time.Duration(d.Int64N(int64(t))) }

func newStorm(kind, stack string, seed uint64) *storm {
	h := fnv.New64()
	fmt.Fprint(h, kind, stack)
	d := randomDrawer{rand.New(rand.NewPCG(seed, h.Sum64()))}
	s := &storm{kind: kind, stack: stack, seed: seed, ranks: 3 + d.IntN(2), comms: 1 + d.IntN(2)}
	if kind == "shortage" && stack == "ob1+shm" && d.one(3) {
		s.ranks = 5 + d.IntN(4)
	}
	s.hasTwoNodes = stack == "cm+shm" && d.one(2)
	s.env = append(s.env, stacks[stack]...)
	s.parameters(d)
	s.noFallback = kind == "shortage" && d.one(4)
	s.messages(d)
	kinds, n := len(collectives), d.IntN(16)
	if d.one(2) {
		kinds -= 2
	}
	if kind == "close" && !d.one(4) {
		n = 0
	}
	for range n {
		s.collectives = append(s.collectives, collective{collectives[d.IntN(kinds)], messageLengths[d.IntN(len(messageLengths)-1)].most, d.IntN(s.ranks)})
	}
	s.steps = make([]int, s.ranks)
	for _, st := range s.streams {
		for _, m := range st.messages {
			s.steps[st.from]++
			if m.receivedAfter != never {
				s.steps[st.to]++
			}
		}
	}
	for rank := range s.steps {
		s.steps[rank] += len(s.collectives)
	}
	s.fault = s.drawFault(d)
	for i := range s.streams {
		if st := &s.streams[i]; kind == "close" && st.from == s.fault.rank && !st.isAnySource {
			// The rank may withdraw any of them, whose receive must not match the next one.
			for k := range st.messages {
				st.messages[k].tag = ownTag + k
				if m := &st.messages[k]; m.recv == recvAnyTag {
					m.recv = recv
				}
			}
		}
	}
	return s
}

// parameters draws the parameters with limits.
func (s *storm) parameters(d randomDrawer) {
	set := func(name string, values ...string) {
		if v := values[d.IntN(len(values))]; v != "" {
			s.env = append(s.env, "FERRY_"+name+"="+v)
		}
	}
	set("BTL_SHM_RING_SIZE", "", "", "64KiB")
	set("BTL_SHM_SINGLE_COPY", "", "", "off", "cma", "memory")
	set("PML_OB1_UNEXPECTED_LIMIT", "", "", "64KiB")
	set("CID_POLICY", "", "", "lazy")
}

func (s *storm) messages(d randomDrawer) {
	wild := make([]bool, s.comms)
	for i := range wild {
		wild[i] = d.one(2)
	}
	at := map[[4]int]int{}
	pauses := d.IntN(3)
	for range 50 + d.IntN(200) {
		comm, from, to := d.IntN(s.comms), d.IntN(s.ranks), d.IntN(s.ranks-1)
		if to >= from {
			to++
		}
		class := 0
		if wild[comm] && d.one(3) {
			class = 1
		}
		key := [4]int{comm, from, to, class}
		i, ok := at[key]
		if !ok {
			i = len(s.streams)
			at[key] = i
			st := stream{comm: comm, from: from, to: to, isAnySource: class == 1, sendWindow: 1 + d.IntN(8), recvWindow: 1 + d.IntN(8)}
			if d.one(3) {
				st.startDelay = d.upTo(5 * time.Millisecond)
			}
			s.streams = append(s.streams, st)
		}
		st := &s.streams[i]
		st.messages = append(st.messages, st.envelope(d))
		if m := &st.messages[len(st.messages)-1]; pauses > 0 && d.one(10) {
			m.pause = d.upTo(500 * time.Microsecond)
		}
	}
	claims := d.one(3)
	for i := range s.streams {
		s.streams[i].makeUnambiguous(wild[s.streams[i].comm], claims)
	}
}

func (st *stream) envelope(d randomDrawer) envelope {
	m := envelope{size: length(d), tag: d.IntN(plainTags), send: sendMode(d.IntN(int(sendModes))), recv: recvMethod(d.IntN(int(recvMethods))), isRegistered: d.one(8)}
	if st.isAnySource {
		m.tag = wildTag
		return m
	}
	switch {
	case d.one(8):
		m.receivedAfter = 1 + d.IntN(6)
	case d.one(16) && st.from < st.to:
		// No receive takes the message, and its sender waits until the other end has closed. All
		// such messages have one direction, so that no two ranks wait for each other.
		m.receivedAfter = never
	}
	if m.receivedAfter != 0 {
		m.tag = ownTag + len(st.messages)
		m.send = isend + sendMode(d.IntN(int(sendModes-isend)))
	}
	return m
}

func length(d randomDrawer) int {
	sum := 0
	for _, l := range messageLengths {
		sum += l.weight
	}
	pick := d.IntN(sum)
	for _, l := range messageLengths {
		if pick -= l.weight; pick < 0 {
			return l.least + d.IntN(l.most-l.least+1)
		}
	}
	panic("weights do not add up")
}

// makeUnambiguous ensures that each receive matches one message only. A receive with any tag or any source
// would also match delayed messages. With claims, unreceived messages may be matched by a probe.
func (st *stream) makeUnambiguous(wild, claims bool) {
	plain := !wild
	for _, m := range st.messages {
		plain = plain && m.receivedAfter == 0
	}
	for i := range st.messages {
		switch m := &st.messages[i]; {
		case m.recv == recvAnyTag && !plain, m.receivedAfter == never && !claims:
			m.recv = recv
		}
	}
}

// lastSteps are the steps at the end of a rank, which are before its communicators close, before
// its session closes, and after that.
const lastSteps = 3

func (s *storm) drawFault(d randomDrawer) fault {
	f := fault{rank: d.IntN(s.ranks), fraction: d.Float64()}
	pick := func(names ...string) { f.variant = names[d.IntN(len(names))] }
	if d.one(2) {
		f.delay = d.upTo([...]time.Duration{100 * time.Microsecond, time.Millisecond, 10 * time.Millisecond}[d.IntN(3)])
	}
	switch s.kind {
	case "kill":
		pick("signal", "signal", "signal", "exit 0", "exit 3", "panic")
		if d.one(12) {
			f.fromStart, f.delay = true, d.upTo(60*time.Millisecond)
		}
	case "close":
		pick("settle", "withdraw", "abandon")
	case "cut":
		f.variant = "cut"
		if d.one(4) {
			f.rank = everywhere
		}
	case "shortage":
		if d.one(2) {
			f.rank = everywhere
		}
		pick("small", "small", "full", "descriptors", "address space")
		switch f.variant {
		case "small":
			f.remaining = 128 << 10 << d.IntN(4)
		case "full":
			f.remaining = d.Int64N(64 << 10)
		case "descriptors":
			f.remaining = d.Int64N(4)
		case "address space":
			f.remaining = 256 << 10 << d.IntN(8)
		}
	}
	return f
}

// isFaulty reports whether a rank has the fault.
func (s *storm) isFaulty(rank int) bool { return s.fault.rank == rank || s.fault.rank == everywhere }

// mayLose reports whether receives of a rank may fail after they have matched a message of another
// rank. The message is lost then, and later ones arrive. A rank that is cut off is a failure for
// all others.
func (s *storm) mayLose(rank, from int) bool {
	return s.isFaulty(from) || s.kind == "cut" && s.isFaulty(rank)
}

// faultStep returns the step of a rank before which the fault occurs.
func (s *storm) faultStep(rank int) int {
	n := s.steps[rank]
	if s.kind == "kill" {
		n += lastSteps
	}
	return int(s.fault.fraction * float64(n))
}

// mayHaveClosed reports whether a killed rank may have closed its session before.
func (s *storm) mayHaveClosed(rank int) bool {
	return s.kind == "kill" && (s.faultStep(rank) > s.steps[rank] || s.fault.fromStart)
}

// tmpfsSize returns the size of the file system for segments, 0 for the default.
func (s *storm) tmpfsSize() int64 {
	switch s.fault.variant {
	case "small":
		return s.fault.remaining
	case "full":
		return 8 << 20
	}
	return 0
}

func (f fault) String() string {
	where := fmt.Sprintf("in rank %d", f.rank)
	if f.rank == everywhere {
		where = "in all ranks"
	}
	if f.fromStart {
		return fmt.Sprintf("%s %s %v after its start", f.variant, where, f.delay)
	}
	return fmt.Sprintf("%s %s at %.2f, after %v, room %d", f.variant, where, f.fraction, f.delay, f.remaining)
}

// pattern fills b with the contents of message i of stream st.
func pattern(b []byte, st, i int) {
	word := uint64(st)<<32 + uint64(i)*0x9E3779B97F4A7C15 + 0xA5
	for ; len(b) >= 8; b = b[8:] {
		binary.LittleEndian.PutUint64(b, word)
		word += 0x2545F4914F6CDD1D
	}
	for k := range b {
		b[k] = byte(word >> (8 * k))
	}
}
