package server

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ferrympi/ferry/bootstrap/internal/launched"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
)

// Listen makes a directory of the job (mode 0700) below base, with the server's socket (mode 0600),
// and serves there until Close, which removes both. An empty base means the first usable one of
// $XDG_RUNTIME_DIR, $TMPDIR, /tmp and /dev/shm (baseCandidates). Descriptors are close-on-exec, as
// all of Go's.
func (s *Server) Listen(base string) error {
	candidates := baseCandidates()
	if base != "" {
		candidates = []candidate{{path: base}}
	}
	dir, l, err := listenIn(candidates)
	if err != nil {
		return fmt.Errorf("bootstrap server: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosed || s.socket.listener != nil {
		l.Close()
		os.RemoveAll(dir)
		return errors.New("bootstrap server: Listen after Close, or a second time")
	}
	s.socket = jobSocket{listener: l, dir: dir, address: "unix:" + l.Addr().String()}
	s.wg.Go(func() { s.accept(l) })
	return nil
}

// jobSocket is the socket of a server in the directory of its job. Server.mu guards it.
type jobSocket struct {
	listener net.Listener
	dir      string
	address  string
}

// close stops listening, and returns the directory, which the caller removes with the socket.
func (k *jobSocket) close() (dir string) {
	if k.listener != nil {
		k.listener.Close()
	}
	dir, k.dir = k.dir, ""
	return dir
}

// Dir returns the job's directory, or "" before Listen and after Close.
func (s *Server) Dir() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.socket.dir
}

// Environ returns the variables, as "NAME=value", that identify process rank. They include the
// job's secret. Call Listen first.
func (s *Server) Environ(rank int) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	first, size, ok := s.sets.World(uint32(rank))
	if !ok {
		size = s.opt.Size
	}
	return []string{
		wire.EnvAddress + "=" + s.socket.address,
		wire.EnvToken + "=" + s.token,
		wire.EnvNamespace + "=" + s.opt.Namespace,
		wire.EnvRank + "=" + strconv.Itoa(rank),
		wire.EnvFirst + "=" + strconv.Itoa(first),
		wire.EnvSize + "=" + strconv.Itoa(size),
		wire.EnvMost + "=" + strconv.Itoa(s.sets.Most()),
	}
}

// InheritedEnviron returns the environment that ranks inherit from their launcher. It omits variables that
// identify the launcher as a rank of another launcher or as a singleton, because they are valid for
// one process only, and a rank that used them would disturb that job. A rank that starts another
// launcher gets such variables from it. Environ is appended to the result.
func InheritedEnviron(environ []string) []string {
	kept := slices.DeleteFunc(slices.Clone(environ), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return launched.NamesRank(name)
	})
	return append(kept, wire.EnvSingleton+"=false") // Overrides files and variables.
}

// accept accepts connections until Close. On other errors, such as a lack of descriptors, it tries
// again, and logs the first error in a row.
func (s *Server) accept(l net.Listener) {
	const atFirst = time.Millisecond
	wait := atFirst
	for {
		nc, err := l.Accept()
		if err == nil {
			wait = atFirst
			s.ServeConn(nc)
			continue
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if wait == atFirst {
			s.opt.Logger.Warn("bootstrap server: accept failed, trying again", "error", err)
		}
		select {
		case <-time.After(wait):
			wait = min(2*wait, time.Second)
		case <-s.done:
			return
		}
	}
}
