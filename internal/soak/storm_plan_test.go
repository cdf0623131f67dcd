package soak

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"time"
)

// A storm is a random program with one fault in it. All of it but the timing follows
// from the kind of the fault, the stack and the seed: ranks and harness each make it
// for themselves.
type storm struct {
	kind  string // kill, close, shortage, cut
	stack string // a key of stacks
	seed  uint64

	ranks   int
	comms   int // for messages, all with all ranks; the first one is the world
	streams []stream
	steps   []int // of each rank's streams and collectives
	colls   []collective
	fault   fault
	env     []string
	nodes   bool // The ranks are on two nodes.
	// noFallback: there is no directory for segments but the small one.
	noFallback bool
}

// stream is the messages from one rank to another on one communicator, in their order.
type stream struct {
	comm, from, to int
	wild           bool // received from any source
	messages       []envelope
	sendWindow     int // nonblocking sends at a time
	recvWindow     int // receives that are posted ahead
	late           time.Duration
}

// envelope is one message, and how both sides treat it.
type envelope struct {
	size, tag  int
	send       sendMode
	recv       recvWay
	hold       int  // it is received after so many later ones; never: not at all
	registered bool // out of AllocMem memory
	pause      time.Duration
}

const never = -1

type sendMode int

const (
	send sendMode = iota
	ssend
	isend // the first that doesn't block
	issend
	bsend
	persistentSend
	sendModes
)

var sendNames = [...]string{"send", "ssend", "isend", "issend", "bsend", "persistent send"}

type recvWay int

const (
	post recvWay = iota // Irecv, and waited for later
	recv
	recvAnyTag
	iprobeRecv
	mprobeRecv
	improbeIrecv
	persistentRecv
	recvWays
)

var recvNames = [...]string{"irecv", "recv", "recv of any tag", "iprobe", "mprobe", "improbe", "persistent receive"}

// collective is a call that all ranks make, in the same order, on a communicator of its
// own.
type collective struct {
	op   string
	size int
	root int
}

// The last two are not in all storms.
var collectives = []string{"barrier", "bcast", "allreduce", "dup", "split", "split off"}

// fault says what goes wrong.
type fault struct {
	rank  int // where; everywhere: in all
	how   string
	at    float64 // the part of the rank's steps that come before it
	early bool    // it counts from the beginning of the process, in place of a step
	delay time.Duration
	room  int64 // what is left: bytes, or descriptors
}

const everywhere = -1

// Tags. Messages that are received out of turn, or never, have one of their own.
const (
	plainTags   = 3
	wildTag     = 10
	farewellTag = 11
	lateSendTag = 12 // never received
	lateRecvTag = 13 // never sent
	ownTag      = 100
)

// messageLengths are around the limits of cells, frames, eager sends, single copies and
// libfabric's own rendezvous (16 KiB).
var messageLengths = [...]struct{ least, most, weight int }{
	{1, 40, 20}, {41, 64, 8}, {65, 4000, 16}, {8000, 8400, 10}, {15_900, 16_400, 12}, {16_500, 20_000, 12},
	{32_500, 33_000, 8}, {65_000, 70_000, 6}, {100_000, 300_000, 5}, {1<<20 - 64, 1 << 20, 3},
}

// stacks are what messages go over.
var stacks = map[string][]string{
	"ob1+shm": nil,
	"ob1+tcp": overSockets,
	"cm+shm":  {"FERRY_PML=cm", "FERRY_MTL_OFI_PROVIDER_INCLUDE=tcp;ofi_rxm"},
	"cm":      {"FERRY_PML=cm", "FERRY_MTL_OFI_PROVIDER_INCLUDE=tcp;ofi_rxm", "FERRY_PML_CM_SHARED_MEMORY=false"},
}

// String is what storm parses.
func (s *storm) String() string { return fmt.Sprintf("%s/%s/%d", s.kind, s.stack, s.seed) }

func parseStorm(text string) *storm {
	parts := strings.Split(text, "/")
	var seed uint64
	fmt.Sscan(parts[2], &seed)
	return newStorm(parts[0], parts[1], seed)
}

// drawer draws what a storm is made of.
type drawer struct{ *rand.Rand }

func (d drawer) one(in int) bool { return d.IntN(in) == 0 }

func (d drawer) upTo(t time.Duration) time.Duration { return time.Duration(d.Int64N(int64(t))) }

func newStorm(kind, stack string, seed uint64) *storm {
	h := fnv.New64()
	fmt.Fprint(h, kind, stack)
	d := drawer{rand.New(rand.NewPCG(seed, h.Sum64()))}
	s := &storm{kind: kind, stack: stack, seed: seed, ranks: 3 + d.IntN(2), comms: 1 + d.IntN(2)}
	if kind == "shortage" && stack == "ob1+shm" && d.one(3) {
		s.ranks = 5 + d.IntN(4)
	}
	s.nodes = stack == "cm+shm" && d.one(2)
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
		s.colls = append(s.colls, collective{collectives[d.IntN(kinds)], messageLengths[d.IntN(len(messageLengths)-1)].most, d.IntN(s.ranks)})
	}
	s.steps = make([]int, s.ranks)
	for _, st := range s.streams {
		for _, m := range st.messages {
			s.steps[st.from]++
			if m.hold != never {
				s.steps[st.to]++
			}
		}
	}
	for rank := range s.steps {
		s.steps[rank] += len(s.colls)
	}
	s.fault = s.drawFault(d)
	for i := range s.streams {
		if st := &s.streams[i]; kind == "close" && st.from == s.fault.rank && !st.wild {
			// It may withdraw any of them, whose receive then must not take the next one.
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

// parameters draws those that move limits.
func (s *storm) parameters(d drawer) {
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

func (s *storm) messages(d drawer) {
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
			st := stream{comm: comm, from: from, to: to, wild: class == 1, sendWindow: 1 + d.IntN(8), recvWindow: 1 + d.IntN(8)}
			if d.one(3) {
				st.late = d.upTo(5 * time.Millisecond)
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
		s.streams[i].settle(wild[s.streams[i].comm], claims)
	}
}

func (st *stream) envelope(d drawer) envelope {
	m := envelope{size: length(d), tag: d.IntN(plainTags), send: sendMode(d.IntN(int(sendModes))), recv: recvWay(d.IntN(int(recvWays))), registered: d.one(8)}
	if st.wild {
		m.tag = wildTag
		return m
	}
	switch {
	case d.one(8):
		m.hold = 1 + d.IntN(6)
	case d.one(16) && st.from < st.to:
		// Nobody takes it; its sender waits until the other end has closed. All such
		// messages go one way, lest two wait for each other.
		m.hold = never
	}
	if m.hold != 0 {
		m.tag = ownTag + len(st.messages)
		m.send = isend + sendMode(d.IntN(int(sendModes-isend)))
	}
	return m
}

func length(d drawer) int {
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

// settle sees to it that each receive has one message that it can take: any tag would
// also take one that is to wait, or one for any source. claims says that what is never
// received may be claimed.
func (st *stream) settle(wild, claims bool) {
	plain := !wild
	for _, m := range st.messages {
		plain = plain && m.hold == 0
	}
	for i := range st.messages {
		switch m := &st.messages[i]; {
		case m.recv == recvAnyTag && !plain, m.hold == never && !claims:
			m.recv = recv
		}
	}
}

// lastSteps are those at a rank's end: before its communicators close, before its
// session closes, and after that.
const lastSteps = 3

func (s *storm) drawFault(d drawer) fault {
	f := fault{rank: d.IntN(s.ranks), at: d.Float64()}
	pick := func(names ...string) { f.how = names[d.IntN(len(names))] }
	if d.one(2) {
		f.delay = d.upTo([...]time.Duration{100 * time.Microsecond, time.Millisecond, 10 * time.Millisecond}[d.IntN(3)])
	}
	switch s.kind {
	case "kill":
		pick("signal", "signal", "signal", "exit 0", "exit 3", "panic")
		if d.one(12) {
			f.early, f.delay = true, d.upTo(60*time.Millisecond)
		}
	case "close":
		pick("settle", "withdraw", "abandon")
	case "cut":
		f.how = "cut"
		if d.one(4) {
			f.rank = everywhere
		}
	case "shortage":
		if d.one(2) {
			f.rank = everywhere
		}
		pick("small", "small", "full", "descriptors", "address space")
		switch f.how {
		case "small":
			f.room = 128 << 10 << d.IntN(4)
		case "full":
			f.room = d.Int64N(64 << 10)
		case "descriptors":
			f.room = d.Int64N(4)
		case "address space":
			f.room = 256 << 10 << d.IntN(8)
		}
	}
	return f
}

// faulty reports whether the fault is in a rank.
func (s *storm) faulty(rank int) bool { return s.fault.rank == rank || s.fault.rank == everywhere }

// loses reports whether a rank's receives may fail that have matched a message of another:
// it is lost then, and later ones come. Who is cut off is a failure to all others.
func (s *storm) loses(rank, from int) bool {
	return s.faulty(from) || s.kind == "cut" && s.faulty(rank)
}

// faultStep is the step of a rank before which the fault comes.
func (s *storm) faultStep(rank int) int {
	n := s.steps[rank]
	if s.kind == "kill" {
		n += lastSteps
	}
	return int(s.fault.at * float64(n))
}

// orderly reports whether a rank that is killed may have closed its session before.
func (s *storm) orderly(rank int) bool {
	return s.kind == "kill" && (s.faultStep(rank) > s.steps[rank] || s.fault.early)
}

// tmpfs is the size of the file system for segments, 0 for the usual one.
func (s *storm) tmpfs() int64 {
	switch s.fault.how {
	case "small":
		return s.fault.room
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
	if f.early {
		return fmt.Sprintf("%s %s %v after its start", f.how, where, f.delay)
	}
	return fmt.Sprintf("%s %s at %.2f, after %v, room %d", f.how, where, f.at, f.delay, f.room)
}

// pattern fills b with what message i of stream st has.
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
