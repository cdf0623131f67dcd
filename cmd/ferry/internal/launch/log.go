package launch

import (
	"context"
	"log/slog"
	"strings"
)

// maxLogLines is the number of lines of the server's log that are queued. A client that floods
// the socket with errors causes more, which are dropped.
const maxLogLines = 64

// lines is a slog.Handler that turns each warning into one line. It never blocks.
type lines chan<- string

func (l lines) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }
func (l lines) WithAttrs([]slog.Attr) slog.Handler               { return l } // Unused by the server.
func (l lines) WithGroup(string) slog.Handler                    { return l }

func (l lines) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	b.WriteString(r.Message)
	sep := " ("
	r.Attrs(func(a slog.Attr) bool {
		b.WriteString(sep + a.Key + ": " + a.Value.String())
		sep = ", "
		return true
	})
	if sep == ", " {
		b.WriteByte(')')
	}
	select {
	case l <- b.String():
	default:
	}
	return nil
}
