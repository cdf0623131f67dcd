package host

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Limits of the log records from a plugin's output.
const (
	linesPerSecond = 100
	lineLimit      = 2000 // Bytes. A longer line is split.
)

// output turns the lines of a plugin into log records, up to linesPerSecond over all its streams.
type output struct {
	logger      *slog.Logger
	openStreams sync.WaitGroup

	mu          sync.Mutex
	secondStart time.Time
	lineCount   int // Of this second
	lastLine    string
}

// follow reads a stream, and closes it at its end.
func (o *output) follow(r io.ReadCloser) {
	o.openStreams.Go(func() { defer r.Close(); o.read(r) })
}

// read logs the lines of one stream until its end.
func (o *output) read(r io.Reader) {
	b := bufio.NewReaderSize(r, lineLimit)
	for {
		line, _, err := b.ReadLine()
		if err != nil {
			return
		}
		o.line(line)
	}
}

func (o *output) line(line []byte) {
	if o.admit(line) {
		o.print(line)
	}
}

// admit counts a line, and reports whether it is within the limit.
func (o *output) admit(line []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lastLine = string(line)
	if time.Since(o.secondStart) > time.Second {
		if o.lineCount > linesPerSecond {
			o.logger.Warn("the plugin prints too much", "lines", o.lineCount, "shown", linesPerSecond)
		}
		o.secondStart, o.lineCount = time.Now(), 0
	}
	o.lineCount++
	return o.lineCount <= linesPerSecond
}

// print logs one line. A line of hclog's JSON keeps its level and attributes. go-plugin's decoder is not used, because it panics if a field of such
// a line has another type.
func (o *output) print(line []byte) {
	var fields map[string]any
	if len(line) > 0 && line[0] == '{' && json.Unmarshal(line, &fields) == nil {
		level, isLevel := fields["@level"].(string)
		message, isMessage := fields["@message"].(string)
		if isLevel && isMessage {
			o.logger.Log(context.Background(), slogLevel(hclog.LevelFromString(level)), message, attributes(fields)...)
			return
		}
	}
	o.logger.Info(string(line))
}

// attributes returns the fields of a line besides hclog's own, in a fixed order.
func attributes(fields map[string]any) (args []any) {
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if key != "" && key[0] != '@' {
			args = append(args, key, fields[key])
		}
	}
	return args
}

func slogLevel(l hclog.Level) slog.Level {
	switch l {
	case hclog.Trace, hclog.Debug:
		return slog.LevelDebug
	case hclog.Warn:
		return slog.LevelWarn
	case hclog.Error:
		return slog.LevelError
	default:
		return slog.LevelInfo
	}
}

// hclogSink receives go-plugin's own records as details. The errors of the start and of the end have the reasons.
type hclogSink struct{ log *slog.Logger }

// Accept implements hclog.SinkAdapter.
func (s hclogSink) Accept(_ string, level hclog.Level, msg string, args ...any) {
	if level >= hclog.Debug {
		s.log.Debug("go-plugin: "+msg, args...)
	}
}

func hclogger(log *slog.Logger) hclog.Logger {
	l := hclog.NewInterceptLogger(&hclog.LoggerOptions{Level: hclog.Off, Output: io.Discard})
	l.RegisterSink(hclogSink{log})
	return l
}
