package report

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

var colour = regexp.MustCompile("\x1b\\[[0-9]*m")

// screen is a terminal that keeps its lines without colors. It does not wrap lines,
// and reports a line that is too long.
type screen struct {
	t             *testing.T
	width, height int
	// The cursor is in the last one, unless it moved up.
	lines []string
	at    int
}

func (s *screen) Write(p []byte) (int, error) {
	text := colour.ReplaceAllString(string(p), "")
	for text != "" {
		var up int
		switch {
		case text[0] == '\n':
			s.at++
			text = text[1:]
		case text[0] == '\r':
			text = text[1:]
		case strings.HasPrefix(text, "\x1b[K"):
			text = text[3:]
		case strings.HasPrefix(text, "\x1b[J"):
			s.lines = s.lines[:min(s.at, len(s.lines))]
			text = text[3:]
		case strings.HasPrefix(text, "\x1b["):
			if n, _ := fmt.Sscanf(text, "\x1b[%dA", &up); n != 1 || up > s.at {
				s.t.Fatalf("unknown or impossible: %q", text)
			}
			if up >= s.height {
				s.t.Errorf("up by %d of %d lines", up, s.height)
			}
			s.at -= up
			text = text[strings.IndexByte(text, 'A')+1:]
		default:
			line, _, _ := strings.Cut(text, "\n")
			line, _, _ = strings.Cut(line, "\x1b")
			for len(s.lines) <= s.at {
				s.lines = append(s.lines, "")
			}
			s.lines[s.at] = line
			text = text[len(line):]
		}
	}
	return len(p), nil
}

func TestTerminal_LiveTable_FitsAndIsRemoved(t *testing.T) {
	r := read(t, "testdata/fail.json")
	for i := range 20 {
		r.Stacks = append(r.Stacks, Stack{Name: fmt.Sprint("cm+ofi some;provider_", i)})
	}
	for _, look := range []Look{{Width: 80, Height: 24, IsLive: true, HasColor: true}, {Width: 40, Height: 8, IsLive: true}, {Width: 1, Height: 1, IsLive: true}} {
		s := &screen{t: t, width: look.Width, height: max(look.Height, 4)}
		term := NewTerminal(s, look)
		term.Begin(r.Stacks, map[string]int{"ob1+shm": 13})
		for _, row := range r.Rows {
			term.Running(row.Stack, row.Case)
			term.mu.Lock()
			table := term.table()
			term.show("", table)
			term.mu.Unlock()
			if len(table) > max(look.Height, 3) {
				t.Errorf("%d lines on %d", len(table), look.Height)
			}
			for _, line := range table {
				if n := utf8.RuneCountInString(colour.ReplaceAllString(line, "")); n > max(look.Width-1, 1) {
					t.Errorf("%d columns on %d: %q", n, look.Width, line)
				}
			}
			if look.Height > 4 && !strings.Contains(table[1], cut(row.Stack, 8)[:7]) {
				t.Errorf("the stack that is busy is not the first: %q", table)
			}
			term.Done(row)
		}
		term.Close()
		bad := 0
		for _, line := range s.lines {
			if strings.HasPrefix(line, "fail ") {
				bad++
			}
		}
		// The line of Begin, and the failures, stay.
		if bad != r.Table().Counts.Bad() || len(s.lines) != bad+1 {
			t.Errorf("left on the terminal:\n%s", strings.Join(s.lines, "\n"))
		}
	}
}

func TestLookAt_NoTerminal_HasNoColour(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if look := LookAt(f); look != (Look{}) {
		t.Errorf("a file looks like %+v", look)
	}
	r := read(t, "testdata/fail.json")
	var plain, coloured bytes.Buffer
	if err := WriteText(&plain, r, nil, Look{}); err != nil {
		t.Fatal(err)
	}
	if err := WriteText(&coloured, r, nil, Look{HasColor: true}); err != nil {
		t.Fatal(err)
	}
	if plain.String() == coloured.String() || colour.ReplaceAllString(coloured.String(), "") != plain.String() {
		t.Error("colours change more than colours")
	}
}
