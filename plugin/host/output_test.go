package host

import (
	"log/slog"
	"strings"
	"testing"
)

// go-plugin panics if a field of hclog's JSON has another type than string.
func TestOutput_HclogLines_KeepLevelAndFields(t *testing.T) {
	for line, want := range map[string]string{
		`{"@level":"warn","@message":"low credit","@timestamp":"2026-01-01T00:00:00.000000Z","peer":3}`: `level=WARN msg="low credit" peer=3`,
		`{"@level":"error","@message":"x"}`:               `level=ERROR msg=x`,
		`{"@level":"trace","@message":"x"}`:               `level=DEBUG msg=x`,
		`{"@level":"info","@message":7}`:                  `level=INFO msg="{\"@level\":\"info\",\"@message\":7}"`,
		`{"@level":1,"@message":"x"}`:                     `level=INFO msg="{\"@level\":1,\"@message\":\"x\"}"`,
		`{"@timestamp":1,"@level":"info","@message":"x"}`: `level=INFO msg=x`,
		`{"@level":`: `level=INFO msg="{\"@level\":"`,
		`plain`:      `level=INFO msg=plain`,
	} {
		var b strings.Builder
		o := &output{logger: slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))}
		o.read(strings.NewReader(line + "\n"))
		if got := strings.TrimSpace(b.String()); got != want {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
	}
}
