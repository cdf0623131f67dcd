package assembly

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/components"
	"github.com/ferrympi/ferry/components/core"
	"github.com/ferrympi/ferry/framework"
)

// levels parses the parameter log.
func levels(t *testing.T, text string) (core.LogLevels, error) {
	t.Helper()
	reg := components.Standard()
	core.Register(reg)
	values, err := reg.Defaults()
	if err == nil {
		values, err = values.With("test", map[string]string{"log": text})
	}
	if err != nil {
		t.Fatal(err)
	}
	return core.ParseLog(reg, values)
}

func TestLog_Levels_ApplyToComponents(t *testing.T) {
	for text, want := range map[string]string{
		"warn":                         "usual:WARN shm:WARN tcp:WARN",
		"off":                          "",
		"error":                        "",
		"info,btl.shm=debug":           "usual:INFO usual:WARN shm:DEBUG shm:INFO shm:WARN tcp:INFO tcp:WARN",
		"off, btl=info, btl.tcp=error": "shm:INFO shm:WARN",
		"btl.shm=off":                  "usual:WARN tcp:WARN",
	} {
		l, err := levels(t, text)
		if err != nil {
			t.Fatal(err)
		}
		log, sink := newLog(l)
		var out bytes.Buffer
		sink.setOutput(&out, nil)
		for _, x := range []struct {
			name string
			log  *slog.Logger
		}{{"usual", log}, {"shm", logger(log, framework.BTL, "shm")}, {"tcp", logger(log, framework.BTL, "tcp").With("peer", 3)}} {
			x.log.Debug(x.name)
			x.log.Info(x.name)
			x.log.Warn(x.name)
		}
		var got []string
		for line := range strings.Lines(out.String()) {
			f := strings.Fields(line)
			got = append(got, strings.TrimPrefix(f[2], "msg=")+":"+strings.TrimPrefix(f[1], "level="))
			if strings.Contains(f[2], "shm") && f[3] != "component=btl.shm" {
				t.Errorf("who says it? %s", line)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("log=%s: got %v, want %s", text, got, want)
		}
	}
}

func TestLog_InvalidLevels_ReturnErrConfig(t *testing.T) {
	for text, says := range map[string]string{
		"loud":                     `unknown level "loud"; use off, error, warn, info or debug`,
		"":                         `unknown level ""`,
		"warn,":                    `unknown level ""`,
		"warn,info":                "two levels for the same",
		"btl.shm=info,btl.shm=off": "two levels for the same",
		"btl.shn=info":             "the nearest known name is btl.shm",
		"btl.shm=":                 `unknown level ""`,
	} {
		if _, err := levels(t, text); !errors.Is(err, framework.ErrConfig) || !strings.Contains(err.Error(), says) {
			t.Errorf("log=%s: %v", text, err)
		}
	}
}

func TestLog_RankUnknown_BuffersLines(t *testing.T) {
	l, _ := levels(t, "debug")
	log, sink := newLog(l)
	log.Info("before")
	log.Info("much", "text", strings.Repeat("x", maxBuffered))
	dir := t.TempDir()
	if err := sink.open(filepath.Join(dir, "log.%r"), 7); err != nil {
		t.Fatal(err)
	}
	log.WithGroup("g").Info("after", "a", 1)
	if err := sink.close(); err != nil {
		t.Fatal(err)
	}
	log.Info("too late")
	got, err := os.ReadFile(filepath.Join(dir, "log.7"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(got)), "\n")
	if len(lines) != 2 || !strings.HasSuffix(lines[0], "msg=before") || !strings.Contains(lines[1], "msg=after g.a=1") || !strings.Contains(lines[1], "rank=7") {
		t.Errorf("the file has %q", lines)
	}
	_, other := newLog(l)
	if err := other.open(filepath.Join(dir, "no", "such"), 0); !errors.Is(err, framework.ErrConfig) {
		t.Errorf("a directory that is not there: %v", err)
	}
}
