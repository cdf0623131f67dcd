// Package server is the bootstrap server of a launcher, the counterpart of bootstrap/local. `ferry
// run` makes one Server per job. Programs import bootstrap/local only.
//
// It holds values, fences, group constructs, published names and process sets in memory under one
// mutex, and reads each connection on one goroutine. It never waits for a client. Frames are
// queued, and a client that does not read is dropped. It has no deadlines for fences and
// constructs. The deadline of a client expires in the client, and the server then answers with the
// missing members.
package server

import (
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/join"
	"github.com/ferrympi/ferry/bootstrap/internal/sets"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/framework"
)

// Options describe a job.
type Options struct {
	// Name of the job. If it is empty, a unique one is made.
	Namespace string
	// Number of initial processes, at least 1, with ranks 0 to Size-1.
	Size int
	// Process sets of the command line.
	Psets []Pset
	// Largest number of processes at a time. 0 means Size.
	MaxProcs int
	// Nodes divides the machine into that many nodes without common memory. They have blocks of the
	// first ranks, at least one each. An added process gets the node with the fewest processes. 0
	// and 1 divide nothing.
	Nodes int
	// Order receives orders to start and end processes, in order. It is called with locks held, and
	// must not block nor call the server. With nil, the launcher starts no processes while the job
	// runs.
	Order func(Order)
	// Logger receives warnings about misbehaving processes and refused connections. nil discards.
	// It is called with locks held, and must not block.
	Logger *slog.Logger

	// HandshakeTimeout limits the time until the Hello of a connection. 0 means 10 s.
	HandshakeTimeout time.Duration

	// OnReport receives the reports of processes (bootstrap.Reporter), concurrently. It owns body.
	// nil drops reports.
	OnReport func(rank int, name string, body []byte)

	// OnLost receives each process that counts as failed from now on, although its end is unknown.
	// Calls come one at a time, and must not block. nil discards.
	OnLost func(Lost)

	// OnPset receives the steps of operations on process sets, and of changes, in order. It is called with locks held, and
	// must neither block nor call the server. nil discards.
	OnPset func(PsetEvent)

	// OnProc receives changes of the processes. The rules of OnPset hold.
	OnProc func(ProcEvent)

	// ProcessTimeout is the time for which a process may leave queries unanswered before it is
	// reported dead. 0 means no queries.
	ProcessTimeout time.Duration
}

// Lost is a process that counts as failed although its end is unknown.
type Lost struct {
	Rank int
	// Time for which it has left queries unanswered. 0 means that its connection broke.
	Unanswered time.Duration
}

const (
	handshakeTimeout = 10 * time.Second

	// exitGrace is the time for which a connection that broke without a goodbye waits for
	// ProcExited before the process is reported dead, unless the process is exiting
	// (broken_conns.go).
	exitGrace = 50 * time.Millisecond

	// drainGrace is the time in which the connection of an exited process still delivers written
	// messages. The connection then ends by itself, unless a child inherited it.
	drainGrace = time.Second
)

// A Server is the bootstrap server of one job. All methods may be called
// concurrently.
type Server struct {
	opt   Options
	token string

	// Connections, writers and timers.
	wg sync.WaitGroup
	// Closed by Close.
	done chan struct{}

	mu       sync.Mutex
	isClosed bool
	// Made by Listen.
	socket jobSocket
	conns  map[*conn]struct{}
	// By rank. A rank below sets.Next without a record has ended; see endLocked.
	procs map[uint32]*proc
	sets  *sets.Table[request]
	// Number of processes in each order that Started has not answered, by first rank.
	starting map[int]int
	// Failures of processes in procs.
	failures []wire.EventBody
	// Ended processes in procs, the oldest first.
	endedRanks []uint32
	eventLog   eventLog
	// Nodes of a divided job by rank, of ended processes too. nil if the job is not divided.
	nodeOfRank    []uint32
	joins         join.Table[request]
	published     join.ValueStore[request]
	lastContextID uint64
}

// proc is the state of one process.
type proc struct {
	rank uint32
	// nil without a connection.
	conn *conn
	// Nonce of the last incarnation, 0 if there is none.
	incarnation uint64
	// The last incarnation has left, unless the end of the process shows a failure.
	hasLeft     bool
	leftAt      time.Time
	withdrawnAt time.Time
	// Process that connected last, 0 if unknown.
	pid    int
	values join.ValueStore[request]
	// It never returns.
	hasEnded bool
	// The others have received its failure.
	hasFailed bool
	// ProcExited was called, with exitReason.
	hasExited  bool
	exitReason string
	// Its connection broke, and reportBroken follows after exitGrace.
	isConnBroken bool
}

// New returns a server for a job. It returns ErrConfig for a size, limit or process set out of
// range.
func New(opt Options) (*Server, error) {
	if opt.Size < 1 || opt.Size > wire.MaxElements {
		return nil, fmt.Errorf("%w: a job of %d processes: want 1 to %d", framework.ErrConfig, opt.Size, wire.MaxElements)
	}
	if opt.MaxProcs != 0 && (opt.MaxProcs < opt.Size || opt.MaxProcs > sets.MaxRanks) {
		return nil, fmt.Errorf("%w: a limit of %d processes: want %d to %d", framework.ErrConfig, opt.MaxProcs, opt.Size, sets.MaxRanks)
	}
	if opt.Nodes < 0 || opt.Nodes > opt.Size {
		return nil, fmt.Errorf("%w: %d nodes for a job of %d processes: want 1 to %d", framework.ErrConfig, opt.Nodes, opt.Size, opt.Size)
	}
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	if opt.HandshakeTimeout == 0 {
		opt.HandshakeTimeout = handshakeTimeout
	}
	if opt.Namespace == "" {
		opt.Namespace = "ferry-" + strings.ToLower(rand.Text())
	}
	if len(opt.Namespace) > bootstrap.MaxName {
		return nil, fmt.Errorf("%w: a namespace of %d bytes: the limit is %d", framework.ErrConfig, len(opt.Namespace), bootstrap.MaxName)
	}
	s := &Server{
		opt:      opt,
		token:    rand.Text() + rand.Text(),
		done:     make(chan struct{}),
		conns:    map[*conn]struct{}{},
		procs:    make(map[uint32]*proc, opt.Size),
		joins:    join.Table[request]{Namespace: opt.Namespace, Size: opt.Size},
		eventLog: eventLog{brokenComms: map[[16]byte]struct{}{}}, starting: map[int]int{},
	}
	s.addProcs(0, opt.Size)
	s.joins.HasEnded = s.hasEnded
	s.sets = s.newSets()
	if err := s.definePsets(); err != nil {
		return nil, err
	}
	if opt.ProcessTimeout > 0 {
		s.wg.Go(s.queryProcs)
	}
	return s, nil
}

// Namespace returns the job's name.
func (s *Server) Namespace() string { return s.opt.Namespace }

// ProcExited records the end of process rank. reason is empty for exit status 0, and otherwise a
// text such as "signal: killed" or "exit status 3". A rank out of range is ignored.
// bootstrap.Client.Close specifies which ends are failures. All waits for the process end in any
// case.
func (s *Server) ProcExited(rank int, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.procs[uint32(rank)]
	if p == nil || rank < 0 || s.isClosed || p.hasExited || p.hasEnded {
		return
	}
	p.hasExited, p.exitReason = true, reason
	if p.conn != nil {
		// The connection may hold an unread goodbye.
		s.runAfter(drainGrace, p.conn.dropInherited)
		return
	}
	s.concludeExitLocked(p, !p.isConnBroken)
}

// concludeExitLocked ends a process that has exited. It has failed if its status is a failure, or
// if it had not closed its session.
func (s *Server) concludeExitLocked(p *proc, sessionClosed bool) {
	switch {
	case p.exitReason != "":
		s.reportFailedLocked(p, p.exitReason)
	case !sessionClosed:
		s.reportFailedLocked(p, "exit status 0, but its session was not closed")
	default:
		s.endLocked(p)
	}
}

// Dump requests an Inspect dump on standard error from every connected process.
func (s *Server) Dump() { s.RequestDump("") }

// RequestDump requests a dump of the given kind (bootstrap.Event.Reason), and returns the ranks of the
// connected processes.
func (s *Server) RequestDump(how string) (ranks []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broadcastLocked(wire.EventBody{Kind: uint8(bootstrap.Dump), Reason: how}, nil)
	for rank, p := range s.procs {
		if p.conn != nil {
			ranks = append(ranks, int(rank))
		}
	}
	slices.Sort(ranks)
	return ranks
}

// Close ends all connections, removes the files of Listen, and waits for all goroutines. A second
// Close has no effect.
func (s *Server) Close() error {
	s.mu.Lock()
	if s.isClosed {
		s.mu.Unlock()
		s.wg.Wait()
		return nil
	}
	s.isClosed = true
	close(s.done)
	if s.eventLog.droppedNotes > 0 {
		s.opt.Logger.Debug("bootstrap server: notes dropped", "count", s.eventLog.droppedNotes)
	}
	dir := s.socket.close()
	for c := range s.conns {
		c.drop()
	}
	s.mu.Unlock()
	s.wg.Wait()
	return os.RemoveAll(dir) // No effect for "".
}

// runAfter calls f on a goroutine of its own after d, unless the server closes before. The caller
// holds s.mu, and the server is open.
func (s *Server) runAfter(d time.Duration, f func()) {
	s.wg.Go(func() {
		select {
		case <-time.After(d):
			f()
		case <-s.done:
		}
	})
}

// removeConnLocked handles the end of c, which determines the condition of its process.
func (s *Server) removeConnLocked(c *conn) {
	p := c.proc
	p.conn = nil
	for _, leave := range c.pendingRequests {
		leave(false)
	}
	c.pendingRequests = nil
	s.sets.Disconnected(p.rank)
	switch {
	case s.isClosed, p.hasEnded:
	case p.hasExited:
		if c.receivedGoodbye {
			s.recordLeftLocked(p)
		}
		s.concludeExitLocked(p, c.receivedGoodbye)
	case c.receivedGoodbye: // It may connect again.
		s.recordLeftLocked(p)
	default:
		p.isConnBroken = true
		p.recordWithdrawalLocked()
		s.runAfter(exitGrace, func() { s.reportBroken(p, c.pid, exitGrace) })
	}
}

// reportFailedLocked reports a process dead to all processes, once. It may be alive and connected.
func (s *Server) reportFailedLocked(p *proc, reason string) {
	if p.hasEnded || s.isClosed {
		return
	}
	reason = reason[:min(len(reason), bootstrap.MaxName)]
	ev := wire.EventBody{Kind: uint8(bootstrap.PeerFailed), Rank: p.rank, Nonce: p.incarnation, Reason: reason}
	s.opt.Logger.Info("process failed", "rank", p.rank, "reason", reason)
	p.hasFailed = true
	s.observeProcLocked(p, reason)
	// The event precedes the failures of fences.
	s.broadcastLocked(ev, nil)
	s.endLocked(p)
	s.expelLocked(p)
	if s.procs[p.rank] == p {
		s.failures = append(s.failures, ev)
	}
}

// endLocked fails the calls that wait for a process. The state of a process that left by a change,
// or whose change is undone, is dropped at once. Others keep their values until a finished change
// has removed them, or as many processes as the job's limit have ended after them.
func (s *Server) endLocked(p *proc) {
	p.hasEnded = true
	if !p.hasFailed {
		s.observeProcLocked(p, "")
	}
	s.joins.ProcEnded(p.rank)
	p.values.Fail(wire.FailureBody{Code: wire.CodeMissing, Failed: []uint32{p.rank}})
	s.sets.ProcEnded(p.rank)
	if s.sets.Left(p.rank) {
		s.dropStateLocked(p.rank)
		return
	}
	if s.endedRanks = append(s.endedRanks, p.rank); len(s.endedRanks) > s.sets.Most() {
		s.dropStateLocked(s.endedRanks[0])
	}
}

// hasEnded reports whether a process never returns.
func (s *Server) hasEnded(rank uint32) bool {
	p := s.procs[rank]
	return p == nil || p.hasEnded
}

// broadcastLocked sends ev to every connected process except one.
func (s *Server) broadcastLocked(ev wire.EventBody, except *conn) {
	var to []*conn
	for _, p := range s.procs {
		if c := p.conn; c != nil && c != except {
			to = append(to, c)
		}
	}
	s.sendLocked(ev, to...)
}

func (s *Server) sendLocked(ev wire.EventBody, to ...*conn) {
	frame, err := wire.Encode(wire.Event, 0, ev)
	if err != nil {
		s.opt.Logger.Error("event not sent", "error", err)
		return
	}
	for _, c := range to {
		c.send(frame)
	}
}
