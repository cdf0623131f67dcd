package framework

import (
	"strings"
	"testing"
)

func TestCardFailure_HostileText_IsBoundedAndPrintable(t *testing.T) {
	if got := (Card{}).WithNode("n").Failure(); got != "" {
		t.Errorf("a card without a failure has %q", got)
	}
	for reason, want := range map[string]string{
		"fi_endpoint: Cannot assign requested address (99)": "fi_endpoint: Cannot assign requested address (99)",
		"a\x1b[2Jb\n\xff": "a?[2Jb?",
		"":                "",
	} {
		if got := (Card{FailureAddress(reason)}).Failure(); got != want {
			t.Errorf("%q is read as %q, want %q", reason, got, want)
		}
	}
	long := Card{{Component: failureEntry, Blob: []byte(strings.Repeat("x", 1<<20))}}
	if got := long.Failure(); len(got) != maxFailure {
		t.Errorf("%d bytes, want %d", len(got), maxFailure)
	}
}
