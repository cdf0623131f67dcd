package launch

import (
	"bytes"
	"io"
	"sync"
	"time"
)

// MaxLine is the longest line that passes through the launcher in one piece, in
// bytes. A rank that writes without line ends can't make the launcher grow.
const MaxLine = 64 << 10

// drainGrace is how long output is awaited after all ranks have ended: a descendant
// that left its rank's process group may hold the pipe open.
const drainGrace = time.Second

// A destination takes whole lines from several ranks.
type destination struct {
	mu  *sync.Mutex // stdout and stderr may be one terminal: one lock for both
	w   io.Writer
	err error
	// broken is called once, when writing failed.
	broken func(error)
}

// A stream carries one stream of one rank to its destination, line by line. Package
// os/exec writes to it what it reads from the rank's pipe.
type stream struct {
	prefix string
	to     *destination

	mu   sync.Mutex // the end of the job may cut a stream off
	line []byte     // that has begun: the prefix, and what the rank gave so far
}

// Write never fails: a rank may go on when its output has nowhere to go.
func (s *stream) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for rest := b; len(rest) > 0; {
		if len(s.line) == 0 {
			s.line = append(s.line, s.prefix...)
		}
		n := min(len(rest), MaxLine-(len(s.line)-len(s.prefix)))
		end := bytes.IndexByte(rest[:n], '\n')
		if end >= 0 {
			n = end + 1
		}
		s.line, rest = append(s.line, rest[:n]...), rest[n:]
		if end >= 0 || len(s.line)-len(s.prefix) == MaxLine {
			s.flush()
		}
	}
	return len(b), nil
}

// flush hands the line on, with a line end where the rank gave none: a line that is
// cut, or the last one.
func (s *stream) flush() {
	if len(s.line) == 0 {
		return
	}
	if s.line[len(s.line)-1] != '\n' {
		s.line = append(s.line, '\n')
	}
	d := s.to
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err == nil {
		if _, d.err = d.w.Write(s.line); d.err != nil {
			d.broken(d.err)
		}
	}
	s.line = s.line[:0]
}

// close hands on a last line without an end.
func (s *stream) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flush()
}
