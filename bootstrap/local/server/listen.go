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

// Listen makes a directory of the job (mode 0700) below base, and in it the server's socket
// (mode 0600), and serves there until Close, which removes both. An empty base is the first
// usable one of $XDG_RUNTIME_DIR, $TMPDIR, /tmp and /dev/shm (see baseCandidates). Descriptors are
// close-on-exec, as all of Go's.
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
	if s.isClosed || s.listener != nil {
		l.Close()
		os.RemoveAll(dir)
		return errors.New("bootstrap server: Listen after Close, or a second time")
	}
	s.listener, s.dir, s.address = l, dir, "unix:"+l.Addr().String()
	s.wg.Go(func() { s.accept(l) })
	return nil
}

// Dir returns the job's directory, or "" before Listen and after Close.
func (s *Server) Dir() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dir
}

// Environ returns what process rank must find in its environment, as
// "NAME=value". It holds the job's secret. Listen comes first.
func (s *Server) Environ(rank int) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	first, size, ok := s.sets.World(uint32(rank))
	if !ok {
		size = s.opt.Size
	}
	return []string{
		wire.EnvAddress + "=" + s.address,
		wire.EnvToken + "=" + s.token,
		wire.EnvNamespace + "=" + s.opt.Namespace,
		wire.EnvRank + "=" + strconv.Itoa(rank),
		wire.EnvFirst + "=" + strconv.Itoa(first),
		wire.EnvSize + "=" + strconv.Itoa(size),
		wire.EnvMost + "=" + strconv.Itoa(s.sets.Most()),
	}
}

// Inherit returns what ranks get of their launcher's environment: all but what makes the
// launcher a rank of another launcher, or a process by itself. That is true of it, and of
// none of its ranks: two that spoke to another launcher in its name would break its job.
// What a rank starts by another launcher has such variables again, from that one. Whoever
// starts ranks puts Environ behind it.
func Inherit(environ []string) []string {
	kept := slices.DeleteFunc(slices.Clone(environ), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return launched.NamesRank(name)
	})
	return append(kept, wire.EnvSingleton+"=false") // whatever a file or a variable says
}

// accept serves who connects, until Close. When it fails otherwise (no descriptors
// left), it tries again: that may pass. Of failures in a row it logs the first.
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
