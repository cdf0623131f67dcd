// Package pmi1test is a PMI-1 server for tests. It answers as both generations of Hydra and Slurm
// do, over a port or a pair of sockets, records violations for which a launcher would have killed
// the job, and injects faults.
//
// It uses the standard library only, so that it does not share mistakes with the client's parser.
package pmi1test

import (
	"bufio"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Style selects the server whose answers are imitated.
type Style int

// Styles of servers.
const (
	Hydra402 Style = iota // Debian's mpiexec.hydra 4.0.2.
	HydraNew              // Hydra 5.1.0a1, with rc first, and PMI 1.2 with groups.
	Slurm                 // srun --mpi=pmi2.
)

// Options describe the job of a server.
type Options struct {
	Size    int
	KVSName string
	// PMI_process_mapping, or "" for none.
	Mapping string
	Style   Style
	// Called on a new goroutine for each job that a process spawns, before or after the answer.
	// Close waits for it. nil starts no processes.
	OnSpawn func(job *Server)
}

// A Fault is a wrong answer of a server.
type Fault struct {
	// Command to which the answer is wrong.
	Cmd string
	// Exact answer, in place of the request's execution. If it is empty, there is no answer.
	Response string
	// The request is executed in addition to Response.
	MustExecute bool
	// The connection is closed after the answer.
	MustClose bool
	// The correct answer is sent twice in one piece.
	IsRepeated bool
	// In the correct answer the value of this field is cut in half.
	TruncatedField string
}

// A Server serves one job.
type Server struct {
	options  Options
	listener net.Listener
	wg       sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]struct{}
	names *nameTable
	// Values that were put since the last barrier.
	pendingValues map[string]string
	values        map[string]string
	// Connections in barriers, by group.
	barrierConns   map[string][]net.Conn
	fault          *Fault
	requests       []string
	violations     []string
	finalizedRanks []int
	abortStatuses  []int
	spawned        []*Server
	isClosed       bool
	// Of a spawned job. It is constant.
	command Command
}

// Start starts a server on a port of this host.
func Start(o Options) (*Server, error) { return start(o, &nameTable{ports: map[string]string{}}) }

func start(o Options, names *nameTable) (*Server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Server{
		options: o, listener: l, conns: map[net.Conn]struct{}{}, names: names,
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

// Port returns the value of PMI_PORT.
func (s *Server) Port() string { return s.listener.Addr().String() }

// Serve serves the process of that rank on conn, as in descriptor mode. The server owns conn.
func (s *Server) Serve(conn net.Conn, rank int) { s.serve(conn, rank) }

// Close ends all connections, and waits for their goroutines.
func (s *Server) Close() {
	s.listener.Close()
	s.mu.Lock()
	s.isClosed = true // Without further jobs.
	for conn := range s.conns {
		conn.Close()
	}
	jobs := slices.Clone(s.spawned)
	s.mu.Unlock()
	for _, job := range jobs {
		job.Close()
	}
	s.wg.Wait()
}

// InjectFault replaces the next answer to f.Cmd, of any process.
func (s *Server) InjectFault(f Fault) { s.locked(func() { s.fault = &f }) }

// Requests returns the received requests without their ends.
func (s *Server) Requests() (said []string) {
	s.locked(func() { said = slices.Clone(s.requests) })
	return said
}

// Violations returns the violations for which a launcher would have killed the job. These are
// unknown commands, and ends of processes without finalize after a request.
func (s *Server) Violations() (why []string) {
	s.locked(func() { why = slices.Clone(s.violations) })
	return why
}

// FinalizedRanks returns the ranks that have finalized, in that order.
func (s *Server) FinalizedRanks() (ranks []int) {
	s.locked(func() { ranks = slices.Clone(s.finalizedRanks) })
	return ranks
}

// AbortStatuses returns the statuses of abort requests.
func (s *Server) AbortStatuses() (statuses []int) {
	s.locked(func() { statuses = slices.Clone(s.abortStatuses) })
	return statuses
}

// Names returns the published names.
func (s *Server) Names() map[string]string {
	s.names.Lock()
	defer s.names.Unlock()
	return maps.Clone(s.names.ports)
}

// Publish publishes a name, as a process of another job could.
func (s *Server) Publish(service, port string) {
	s.names.Lock()
	defer s.names.Unlock()
	s.names.ports[service] = port
}

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
			line, err := readRequest(r)
			if err != nil {
				break
			}
			spoke = true
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

// answer answers one request, and reports whether it ends the connection.
func (s *Server) answer(conn net.Conn, rank *int, line string) (isLast bool) {
	s.requests = append(s.requests, line)
	fields := parseRequest(line)
	cmd := fields["cmd"]
	if cmd == "spawn" && !s.isSpawnAccepted(line) {
		cmd = "unreadable " + cmd
	}
	if f := s.fault; f != nil && f.Cmd == cmd && !f.IsRepeated && f.TruncatedField == "" {
		s.fault = nil
		if f.MustExecute {
			s.reply(conn, rank, cmd, fields)
		}
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
	conn.Write([]byte(text)) // The client may have closed.
	if cmd == "finalize" {
		s.finalizedRanks = append(s.finalizedRanks, *rank)
	}
	return cmd == "finalize"
}

// truncateField halves the value of a field.
func truncateField(text, key string) string {
	before, rest, _ := strings.Cut(text, " "+key+"=")
	end := strings.IndexAny(rest, " \n")
	return before + " " + key + "=" + rest[:end/2] + rest[end:]
}

// readNumber reads a number, or returns 0.
func readNumber(text string) int {
	n, _ := strconv.Atoi(text)
	return n
}
