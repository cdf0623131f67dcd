package assembly

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/ferrympi/ferry/components/core"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/outfile"
	"github.com/ferrympi/ferry/internal/stderr"
)

// The log of a program that brings no logger: what the parameter log lets through, as lines of
// slog's text format, on standard error or in the file that log.file names.

// componentKey is the attribute that names the component which logs.
const componentKey = "component"

// sink is where lines go. It keeps them until the rank of the process is known, as the name of
// the file may contain it.
type sink struct {
	mu     sync.Mutex
	out    io.Writer // nil: not known yet
	file   *os.File  // to close; nil: none
	held   []byte
	rank   int
	ranked bool
}

// maxHeld bounds what is kept until the rank is known.
const maxHeld = 64 << 10

func (s *sink) Write(line []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.out != nil {
		return s.out.Write(line)
	}
	if len(s.held)+len(line) <= maxHeld {
		s.held = append(s.held, line...)
	}
	return len(line), nil
}

// settle says where lines go.
func (s *sink) settle(out io.Writer, file *os.File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out, s.file = out, file
	if len(s.held) > 0 {
		_, _ = out.Write(s.held) // there is nowhere to say that it failed
		s.held = nil
	}
}

// open settles on the file of that name, or on standard error if the name is empty.
func (s *sink) open(name string, rank int) error {
	s.mu.Lock()
	s.rank, s.ranked = rank, true
	s.mu.Unlock()
	if name == "" {
		s.settle(stderr.Writer{}, nil)
		return nil
	}
	f, err := outfile.Append(strings.ReplaceAll(name, "%r", strconv.Itoa(rank)), 0o600)
	if err != nil {
		return fmt.Errorf("%w: log.file=%s: %w", framework.ErrConfig, name, err)
	}
	s.settle(f, f)
	return nil
}

// close ends the log. What comes afterwards is dropped.
func (s *sink) close() error {
	s.mu.Lock()
	file, open := s.file, s.out != nil
	s.file = nil
	s.mu.Unlock()
	if !open { // opening has failed: what was logged until then may say why
		s.settle(stderr.Writer{}, nil)
	}
	if file == nil {
		return nil
	}
	s.settle(io.Discard, nil)
	return file.Close()
}

// logHandler lets through what the level of its component allows, and adds the rank.
type logHandler struct {
	slog.Handler
	sink   *sink
	levels core.LogLevels
	level  slog.Level
}

// newLog returns a logger, and where it writes.
func newLog(levels core.LogLevels) (*slog.Logger, *sink) {
	s := new(sink)
	text := slog.NewTextHandler(s, &slog.HandlerOptions{Level: slog.LevelDebug}) // the level is decided here
	return slog.New(&logHandler{Handler: text, sink: s, levels: levels, level: levels.Usual}), s
}

// Enabled implements slog.Handler.
func (h *logHandler) Enabled(_ context.Context, level slog.Level) bool { return level >= h.level }

// Handle implements slog.Handler.
func (h *logHandler) Handle(ctx context.Context, r slog.Record) error {
	h.sink.mu.Lock()
	rank, known := h.sink.rank, h.sink.ranked
	h.sink.mu.Unlock()
	if known {
		r = r.Clone()
		r.AddAttrs(slog.Int("rank", rank))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	n := *h
	for _, a := range attrs {
		if a.Key == componentKey {
			n.level = h.levels.Of(a.Value.String())
		}
	}
	n.Handler = h.Handler.WithAttrs(attrs)
	return &n
}

// WithGroup implements slog.Handler.
func (h *logHandler) WithGroup(name string) slog.Handler {
	n := *h
	n.Handler = h.Handler.WithGroup(name)
	return &n
}

// logger is the logger of a component.
func logger(l *slog.Logger, kind framework.Kind, name string) *slog.Logger {
	return l.With(componentKey, framework.ComponentName(kind, name))
}
