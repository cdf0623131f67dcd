// Package server is the launcher's side of bootstrap/local: it tells the
// processes of one job about one another. `ferry run` makes one Server per job;
// programs import only bootstrap/local.
//
// It holds puts, fences, group constructs, published names and process sets in
// memory, behind one mutex, and reads each connection with one goroutine. It
// never waits for a client: what a client must be told is queued, and a client
// that does not read is dropped. It keeps no time of its own for fences and
// constructs: each client's deadline runs out at the client, and the server
// then answers with the names of the missing.
package server

import (
	"crypto/rand"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/events"
	"github.com/ferrympi/ferry/bootstrap/internal/join"
	"github.com/ferrympi/ferry/bootstrap/internal/sets"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/framework"
)

// Options describe a job.
type Options struct {
	Namespace string // its name; empty: a unique one is made
	Size      int    // Its first processes, at least 1: ranks 0 to Size-1.
	Psets     []Pset // named on the command line
	Most      int    // Largest number of processes at a time; 0: Size.
	// Nodes divides the machine into that many nodes without common memory. They have blocks of the first ranks, at
	// least one each. An added process gets the node with the fewest processes. 0 and 1 divide nothing.
	Nodes int
	// Order receives orders to start and end processes. It is called with locks held, in the order
	// of the orders, and must not block nor call the server. Nil: this launcher starts no
	// processes while the job runs.
	Order func(Order)
	// Logger is told what the job's processes or strangers do wrong, as a warning; nil
	// discards. It is called with locks held, and must not wait.
	Logger *slog.Logger

	// HandshakeTimeout is how long a connection may take to say who it is; 0
	// means 10 s.
	HandshakeTimeout time.Duration

	// OnReport receives what processes report (bootstrap.Reporter). Calls come
	// from several goroutines at once; body is the callee's. nil drops reports.
	OnReport func(rank int, name string, body []byte)

	// OnLost receives each process that is not known to have ended and counts as failed from now
	// on. Calls come one at a time, and must not block. Nil discards.
	OnLost func(Lost)

	// ProcessTimeout is the time for which a process may leave queries unanswered before it is
	// reported dead; 0: no queries.
	ProcessTimeout time.Duration
}

// Lost is a process that counts as failed although it is not known to have ended.
type Lost struct {
	Rank       int
	Unanswered time.Duration // Time for which it has left queries unanswered; 0: its connection has broken.
}

const (
	handshakeTimeout = 10 * time.Second

	// exitGrace is how long a connection that broke without a goodbye waits for
	// ProcExited to say why, before the process is reported dead regardless, unless it is
	// seen to end (see exit.go).
	exitGrace = 50 * time.Millisecond

	// drainGrace is how long the connection of an exited process may still
	// deliver what the process had written. It ends by itself, unless a child
	// inherited it.
	drainGrace = time.Second
)

// A Server is the bootstrap server of one job. All methods may be called
// concurrently.
type Server struct {
	opt   Options
	token string

	wg   sync.WaitGroup // connections, writers, timers
	done chan struct{}  // closed by Close

	mu            sync.Mutex
	isClosed      bool
	listener      net.Listener // of Listen
	conns         map[*conn]struct{}
	dir           string           // made by Listen
	address       string           // what Environ gives
	procs         map[uint32]*proc // By rank. A rank below sets.Next without a record has ended; see endLocked.
	sets          *sets.Table[request]
	starting      map[int]int           // Number of processes in each order that Started has not answered, by first rank.
	failures      []wire.EventBody      // Of processes in procs.
	endedRanks    []uint32              // Ended processes in procs, the oldest first.
	unsentLeft    []*proc               // Processes whose incarnation has ended, and whose peers have not been notified.
	brokenComms   map[[16]byte]struct{} // communicators of which broke has told
	nodeOfRank    []uint32              // Nodes of a divided job by rank, of ended processes too; nil if it is not divided.
	revoked       events.Revocations
	droppedNotes  uint64
	joins         join.Table[request]
	published     join.ValueStore[request]
	lastContextID uint64 // context ids given out
}

// proc is what the server knows of one process.
type proc struct {
	rank         uint32
	conn         *conn  // its connection, nil before and after
	incarnation  uint64 // of the last life that it began; 0: none
	hasLeft      bool   // that is over in good order, as it seems
	leftAt       time.Time
	departedAt   time.Time // see Parted
	pid          int       // of the process that spoke last; 0: not known
	values       join.ValueStore[request]
	hasEnded     bool   // it will never come (again)
	hasFailed    bool   // the others know that it has failed
	hasExited    bool   // ProcExited was called
	exitReason   string // of ProcExited
	isConnBroken bool   // its connection broke; it has exitGrace left
}

// New returns a server for the job that opt describes. It fails with ErrConfig
// on a size, limit or process set that is out of range.
func New(opt Options) (*Server, error) {
	if opt.Size < 1 || opt.Size > wire.MaxElements {
		return nil, fmt.Errorf("%w: a job of %d processes: want 1 to %d", framework.ErrConfig, opt.Size, wire.MaxElements)
	}
	if opt.Most != 0 && (opt.Most < opt.Size || opt.Most > sets.MaxRanks) {
		return nil, fmt.Errorf("%w: a limit of %d processes: want %d to %d", framework.ErrConfig, opt.Most, opt.Size, sets.MaxRanks)
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
		opt:         opt,
		token:       rand.Text() + rand.Text(),
		done:        make(chan struct{}),
		conns:       map[*conn]struct{}{},
		procs:       make(map[uint32]*proc, opt.Size),
		joins:       join.Table[request]{Namespace: opt.Namespace, Size: opt.Size},
		brokenComms: map[[16]byte]struct{}{}, starting: map[int]int{},
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

// ProcExited tells the server that process rank has ended. reason is empty for
// exit status 0, and otherwise says how ("signal: killed", "exit status 3").
// A rank out of range is ignored. Whether the process counts as failed is said
// at bootstrap.Client's Close; in any case nobody waits for it any more.
func (s *Server) ProcExited(rank int, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.procs[uint32(rank)]
	if p == nil || rank < 0 || s.isClosed || p.hasExited || p.hasEnded {
		return
	}
	p.hasExited, p.exitReason = true, reason
	if p.conn != nil {
		// It may still hold a goodbye that nobody has read: its reader decides.
		s.runAfter(drainGrace, p.conn.dropInherited)
		return
	}
	s.concludeExitLocked(p, !p.isConnBroken)
}

// concludeExitLocked settles what becomes of a process that has exited: it has failed if
// its status says so, or if it had not closed its session.
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

// Dump asks every connected process for an Inspect dump on its standard error.
func (s *Server) Dump() { s.AskWaits("") }

// AskWaits is Dump in the way that is asked for (bootstrap.Event's Reason), and returns the
// ranks of the processes that are connected.
func (s *Server) AskWaits(how string) (ranks []int) {
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

// Close ends all connections, removes what Listen made, and waits until nothing of
// the server runs. A second Close does nothing.
func (s *Server) Close() error {
	s.mu.Lock()
	if s.isClosed {
		s.mu.Unlock()
		s.wg.Wait()
		return nil
	}
	s.isClosed = true
	close(s.done)
	if s.droppedNotes > 0 {
		s.opt.Logger.Debug("bootstrap server: notes dropped", "count", s.droppedNotes)
	}
	if s.listener != nil {
		s.listener.Close() // the directory goes below, and the socket with it
	}
	for c := range s.conns {
		c.drop()
	}
	dir := s.dir
	s.dir = ""
	s.mu.Unlock()
	s.wg.Wait()
	return os.RemoveAll(dir) // nothing for ""
}

// after calls f on a goroutine of its own in d, unless the server is closed
// before. The caller holds s.mu, and s is not closed.
func (s *Server) runAfter(d time.Duration, f func()) {
	s.wg.Go(func() {
		select {
		case <-time.After(d):
			f()
		case <-s.done:
		}
	})
}

// removeConnLocked is called when c has ended. p's fate depends on how.
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
	case c.receivedGoodbye: // it may come again
		s.recordLeftLocked(p)
	default:
		p.isConnBroken = true
		p.recordDepartureLocked()
		s.runAfter(exitGrace, func() { s.reportBroken(p, c.pid, exitGrace) })
	}
}

// reportFailedLocked reports a process dead to all processes, once. It may be alive and connected.
func (s *Server) reportFailedLocked(p *proc, reason string) {
	if p.hasEnded || s.isClosed {
		return
	}
	reason = reason[:min(len(reason), bootstrap.MaxName)]
	ev := wire.EventBody{Kind: uint8(bootstrap.ProcDied), Rank: p.rank, Nonce: p.incarnation, Reason: reason}
	s.opt.Logger.Info("process failed", "rank", p.rank, "reason", reason)
	p.hasFailed = true
	// The event precedes the failures of fences.
	s.broadcastLocked(ev, nil)
	s.endLocked(p)
	s.expelLocked(p)
	if s.procs[p.rank] == p {
		s.failures = append(s.failures, ev)
	}
}

// endLocked fails the calls that wait for a process. The state of a process that left by a change, or whose change
// is undone, is dropped at once. Others keep their values until a finished change has removed them, or as many
// processes as the job's limit have ended after them.
func (s *Server) endLocked(p *proc) {
	p.hasEnded = true
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

// hasEnded reports whether a process will never come (again).
func (s *Server) hasEnded(rank uint32) bool {
	p := s.procs[rank]
	return p == nil || p.hasEnded
}

// broadcastLocked sends ev to every process that has said hello, but not to
// except.
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
