package text

import (
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestWidth_Columns_IsThatOfEnvironment(t *testing.T) {
	for columns, want := range map[string]int{"": 80, "120": 120, "7": 40, "-1": 80, "wide": 80} {
		t.Setenv("COLUMNS", columns)
		if got := Width(&strings.Builder{}); got != want {
			t.Errorf("COLUMNS=%q: width %d, want %d", columns, got, want)
		}
	}
	pipe, _, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	t.Setenv("COLUMNS", "")
	if got := Width(pipe); got != 80 {
		t.Errorf("width %d of a pipe, want 80", got)
	}
}

func TestTable_SeveralWideColumns_AreWrapped(t *testing.T) {
	var b strings.Builder
	Table(&b, 40, [][]string{
		{"PAIRS", "DEVICE", "NOT USED"},
		{"0-3", "10.1.0.5 to 10.1.0.6, 10.2.0.5 to 10.2.0.6", "tcp: shm is preferred, shm: none"},
		{"4", "eth0", "-"},
	})
	want := `PAIRS  DEVICE       NOT USED
0-3    10.1.0.5 to  tcp: shm is
       10.1.0.6,    preferred, shm: none
       10.2.0.5 to
       10.2.0.6
4      eth0         -
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

// A table keeps its words, and fits unless its longest words do not.
func TestTable_AnyCells_FitAndKeepTheirWords(t *testing.T) {
	cell := rapid.StringMatching(`([a-zé]{1,9} ){0,12}[a-z]{1,9}`)
	rapid.Check(t, func(t *rapid.T) {
		rows := rapid.SliceOfN(rapid.SliceOfN(cell, 3, 3), 1, 4).Draw(t, "rows")
		width := rapid.IntRange(40, 120).Draw(t, "width")
		var b strings.Builder
		Table(&b, width, rows)
		words := map[string]int{}
		for line := range strings.Lines(b.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > width {
				t.Errorf("%d columns, want at most %d: %s", n, width, line)
			}
			for _, w := range strings.Fields(line) {
				words[w]++
			}
		}
		for _, row := range rows {
			for _, w := range strings.Fields(strings.Join(row, " ")) {
				words[w]--
			}
		}
		for w, n := range words {
			if n != 0 {
				t.Errorf("%q occurs %d times too often", w, n)
			}
		}
	})
}

func TestWrap_LongWord_IsNotBroken(t *testing.T) {
	path := "/" + strings.Repeat("a", 60)
	var b strings.Builder
	Wrap(&b, 40, "    ", "see "+path+" and so on")
	if want := "    see\n    " + path + "\n    and so on\n"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}

func TestTable_LineEndsAndTabs_AreSpaces(t *testing.T) {
	var b strings.Builder
	Table(&b, 80, [][]string{{"PLUGIN", "REASON", "X"}, {"udp", "exit status 1\n\tno socket", "-"}})
	if got, want := b.String(), "PLUGIN  REASON                   X\nudp     exit status 1 no socket  -\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
