package launch

import (
	"context"
	"log/slog"
	"strings"
)

// maxLogLines is how many lines of the server's log may wait to be noted. More than that at once
// are from somebody who floods the socket: the rest is dropped.
const maxLogLines = 64

// lines is a slog.Handler for warnings: each becomes one line. It never waits.
type lines chan<- string

func (l lines) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }
func (l lines) WithAttrs([]slog.Attr) slog.Handler               { return l } // nobody does
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
