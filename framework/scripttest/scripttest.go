// Package scripttest replays golden scripts, which are readable tests of pure state machines. A script is a file of commands. Each is
// followed by its output, indented by four spaces. Lines that begin with # are comments.
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

var update = flag.Bool("update", false, "write the present output into the golden scripts")

// Run replays the scripts that match pattern as subtests. begin returns a function for each script that runs one line and returns its
// output. With -update Run writes the output into the files.
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
