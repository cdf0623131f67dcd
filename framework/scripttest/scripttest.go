// Package scripttest replays golden scripts: the tests of a pure state machine that
// people can read. A script is a file of commands, each followed by what comes of it,
// indented by four spaces; lines that begin with # are comments.
package scripttest

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what the golden scripts give now")

// Run replays the scripts that match pattern, each as a subtest with a command of its
// own, which runs one line and returns what comes of it. With -update it writes the
// outcomes into the files.
func Run(t *testing.T, pattern string, begin func() (command func(line string) ([]string, error))) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts match %s: %v", pattern, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got, err := replay(string(want), begin())
			switch {
			case err != nil:
				t.Fatal(err)
			case *update:
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
			case !bytes.Equal(got, want):
				t.Errorf("%s: another outcome than recorded (-update writes it):\n%s", file, got)
			}
		})
	}
}

func replay(script string, command func(string) ([]string, error)) ([]byte, error) {
	var got bytes.Buffer
	for line := range strings.Lines(script) {
		if strings.HasPrefix(line, "    ") {
			continue
		}
		got.WriteString(line)
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		outcome, err := command(line)
		if err != nil {
			return nil, err
		}
		for _, l := range outcome {
			fmt.Fprintf(&got, "    %s\n", l)
		}
	}
	return got.Bytes(), nil
}
