// Package pmi1test is a PMI-1 server for tests: it answers as Hydra of either
// generation or Slurm do, over a port or a pair of sockets, remembers what a launcher
// would have killed the job for, and breaks its promises where a test says so.
//
// It stands on the standard library, so that a mistake in the client's parser is not
// made here again.
package pmi1test

import (
	"bufio"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Style says whose answers a server gives.
type Style int

// The styles.
const (
	Hydra402 Style = iota // Debian's mpiexec.hydra 4.0.2
	HydraNew              // 5.1.0a1: rc first, PMI 1.2 with groups
	Slurm                 // srun --mpi=pmi2
)

// Options say what job a server has.
type Options struct {
	Size    int
	KVSName string
	Mapping string // PMI_process_mapping; "": none
	Style   Style
}

// A Fault is an answer that a server does not give as it should.
type Fault struct {
	Cmd            string // to which command
	Response       string // the request is not done, and this is said, to the byte; "" with nothing else set: silence
	MustClose      bool   // the connection is closed after that
	IsRepeated     bool   // the right answer, twice in one piece
	TruncatedField string // the right answer, with the value of this field cut in half
}

// A Server serves one job.
type Server struct {
	options  Options
	listener net.Listener
	wg       sync.WaitGroup

	mu             sync.Mutex
	conns          map[net.Conn]struct{}
	names          map[string]string
	pendingValues  map[string]string // before a barrier
	values         map[string]string
	barrierConns   map[string][]net.Conn // in barriers
	fault          *Fault
	requests       []string
	violations     []string
	finalizedRanks []int
	abortStatuses  []int
}

// Start starts a server on a port of this machine.
func Start(o Options) (*Server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Server{
		options: o, listener: l, conns: map[net.Conn]struct{}{}, names: map[string]string{},
		pendingValues: map[string]string{}, values: map[string]string{}, barrierConns: map[string][]net.Conn{},
	}
	if o.Mapping != "" {
		s.values["PMI_process_mapping"] = o.Mapping
	}
	s.wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.serve(conn, -1)
		}
	})
	return s, nil
}

// Port returns what PMI_PORT says.
func (s *Server) Port() string { return s.listener.Addr().String() }

// Serve serves the process of that rank on conn, which becomes the server's: descriptor mode.
func (s *Server) Serve(conn net.Conn, rank int) { s.serve(conn, rank) }

// Close ends all connections, and waits until nothing is served.
func (s *Server) Close() {
	s.listener.Close()
	s.mu.Lock()
	for conn := range s.conns {
		conn.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// Break makes the next answer to f.Cmd, of whichever process, another one.
func (s *Server) InjectFault(f Fault) { s.locked(func() { s.fault = &f }) }

// Said returns the requests that came, without their ends.
func (s *Server) Requests() (said []string) {
	s.locked(func() { said = slices.Clone(s.requests) })
	return said
}

// Killed says why a launcher would have killed the job: unknown commands, and processes
// that had said something and went without finalize.
func (s *Server) Violations() (why []string) {
	s.locked(func() { why = slices.Clone(s.violations) })
	return why
}

// Finished returns the ranks that have finalized, in that order.
func (s *Server) FinalizedRanks() (ranks []int) {
	s.locked(func() { ranks = slices.Clone(s.finalizedRanks) })
	return ranks
}

// Aborted returns the statuses with which processes have aborted the job.
func (s *Server) AbortStatuses() (statuses []int) {
	s.locked(func() { statuses = slices.Clone(s.abortStatuses) })
	return statuses
}

// Names returns what is published.
func (s *Server) Names() map[string]string {
	names := map[string]string{}
	s.locked(func() {
		for k, v := range s.names {
			names[k] = v
		}
	})
	return names
}

// Publish publishes a name, as another job's process could.
func (s *Server) Publish(service, port string) { s.locked(func() { s.names[service] = port }) }

func (s *Server) locked(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *Server) serve(conn net.Conn, rank int) {
	s.locked(func() { s.conns[conn] = struct{}{} })
	s.wg.Go(func() {
		defer conn.Close()
		spoke, finished := false, false
		r := bufio.NewReader(conn)
		for !finished {
			line, err := r.ReadString('\n')
			if err != nil {
				break
			}
			spoke = true
			line = strings.TrimSuffix(line, "\n")
			s.locked(func() { finished = s.answer(conn, &rank, line) })
		}
		s.locked(func() {
			delete(s.conns, conn)
			if spoke && !finished {
				s.violations = append(s.violations, fmt.Sprintf("rank %d is gone without finalize", rank))
			}
		})
	})
}

// answer answers one request, and reports whether the connection is over.
func (s *Server) answer(conn net.Conn, rank *int, line string) (over bool) {
	s.requests = append(s.requests, line)
	fields := map[string]string{}
	for word := range strings.FieldsSeq(line) {
		k, v, _ := strings.Cut(word, "=")
		fields[k] = v
	}
	cmd := fields["cmd"]
	if f := s.fault; f != nil && f.Cmd == cmd && !f.IsRepeated && f.TruncatedField == "" { // it is not done either
		s.fault = nil
		conn.Write([]byte(f.Response))
		return f.MustClose
	}
	text, known := s.reply(conn, rank, cmd, fields)
	if !known {
		s.violations = append(s.violations, fmt.Sprintf("rank %d said %q", *rank, line))
		return true
	}
	if f := s.fault; f != nil && f.Cmd == cmd {
		s.fault = nil
		if f.IsRepeated {
			text += text
		} else {
			text = truncateField(text, f.TruncatedField)
		}
	}
	conn.Write([]byte(text)) // who does not listen any more gets nothing
	if cmd == "finalize" {
		s.finalizedRanks = append(s.finalizedRanks, *rank)
	}
	return cmd == "finalize"
}

// cut halves the value of a field.
func truncateField(text, key string) string {
	before, rest, _ := strings.Cut(text, " "+key+"=")
	end := strings.IndexAny(rest, " \n")
	return before + " " + key + "=" + rest[:end/2] + rest[end:]
}

// number reads a field that holds one; 0 if it does not.
func readNumber(text string) int {
	n, _ := strconv.Atoi(text)
	return n
}
