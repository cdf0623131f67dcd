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

// A program without a logger has the log of the parameter log. Its lines have slog's text format, and go to standard error or to the file of
// log.file.

// componentKey is the attribute that names the component which logs.
const componentKey = "component"

// sink is the output of the log. It buffers lines until the rank of the process is known, because the name of the file may contain the rank.
type sink struct {
	mu sync.Mutex
	// nil while lines are buffered.
	out io.Writer
	// Closed by close. May be nil.
	logFile       *os.File
	bufferedLines []byte
	rank          int
	hasRank       bool
}

// maxBuffered limits the buffer, in bytes. Further lines are dropped.
const maxBuffered = 64 << 10

func (s *sink) Write(line []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.out != nil {
		return s.out.Write(line)
	}
	if len(s.bufferedLines)+len(line) <= maxBuffered {
		s.bufferedLines = append(s.bufferedLines, line...)
	}
	return len(line), nil
}

// setOutput sets the output, and writes the buffer to it.
func (s *sink) setOutput(out io.Writer, file *os.File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out, s.logFile = out, file
	if len(s.bufferedLines) > 0 {
		_, _ = out.Write(s.bufferedLines) // A failed write of the log cannot be reported.
		s.bufferedLines = nil
	}
}

// open opens the output. It is standard error for an empty name.
func (s *sink) open(name string, rank int) error {
	s.mu.Lock()
	s.rank, s.hasRank = rank, true
	s.mu.Unlock()
	if name == "" {
		s.setOutput(stderr.Writer{}, nil)
		return nil
	}
	f, err := outfile.Append(strings.ReplaceAll(name, "%r", strconv.Itoa(rank)), 0o600)
	if err != nil {
		return fmt.Errorf("%w: log.file=%s: %w", framework.ErrConfig, name, err)
	}
	s.setOutput(f, f)
	return nil
}

// close closes the output. Later lines are dropped.
func (s *sink) close() error {
	s.mu.Lock()
	file, open := s.logFile, s.out != nil
	s.logFile = nil
	s.mu.Unlock()
	if !open { // Opening of the process has failed, and the buffer may have the reason.
		s.setOutput(stderr.Writer{}, nil)
	}
	if file == nil {
		return nil
	}
	s.setOutput(io.Discard, nil)
	return file.Close()
}

// logHandler drops records below the level of their component, and adds the rank.
type logHandler struct {
	slog.Handler
	sink     *sink
	levels   core.LogLevels
	minLevel slog.Level
}

// newLog returns a logger and its output.
func newLog(levels core.LogLevels) (*slog.Logger, *sink) {
	s := new(sink)
	text := slog.NewTextHandler(s, &slog.HandlerOptions{Level: slog.LevelDebug}) // logHandler applies the levels.
	return slog.New(&logHandler{Handler: text, sink: s, levels: levels, minLevel: levels.Usual}), s
}

// Enabled implements slog.Handler.
func (h *logHandler) Enabled(_ context.Context, level slog.Level) bool { return level >= h.minLevel }

// Handle implements slog.Handler.
func (h *logHandler) Handle(ctx context.Context, r slog.Record) error {
	h.sink.mu.Lock()
	rank, known := h.sink.rank, h.sink.hasRank
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
			n.minLevel = h.levels.Of(a.Value.String())
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

// logger returns the logger of a component.
func logger(l *slog.Logger, kind framework.Kind, name string) *slog.Logger {
	return l.With(componentKey, framework.ComponentName(kind, name))
}
