package text

import "testing"

func TestAttack_ControlCharactersOfARank_AreEscaped(t *testing.T) {
	for _, c := range []struct{ text, keep, want string }{
		{"a\x1b]0;title\x07b", "", `a\x1b]0;title\ab`},
		{"rank 1\nferry: all is well", "", `rank 1\nferry: all is well`},
		{"goroutine 1:\n\tmain.go", "\n\t", "goroutine 1:\n\tmain.go"},
		{"\u009b2J \x9b2J", "", `\u009b2J ` + "\uFFFD2J"},
		{"größe", "", "größe"},
	} {
		if got := Printable(c.text, c.keep); got != c.want {
			t.Errorf("%q is printed as %q, want %q", c.text, got, c.want)
		}
	}
}
