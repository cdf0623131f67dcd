package btltest

import (
	"go/scanner"
	"go/token"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/internal/needs"
)

// vendor is a transport in a module of its own, as strangers write them.
const vendor = "../../examples/vendor-btl"

// inVendor runs the go command there.
func inVendor(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = vendor
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// TestStrangersTransportPassesTheKits: it keeps the contract and carries ob1.
func TestStrangersTransportPassesTheKits(t *testing.T) {
	needs.Time(t)
	inVendor(t, "vet", "./...")
	inVendor(t, "test", "./...")
}

func TestStrangersTransportNeedsNothingInternal(t *testing.T) {
	for _, p := range strings.Fields(inVendor(t, "list", "-f", `{{join .Imports " "}}`, ".")) {
		if strings.Contains("/"+p+"/", "/internal/") {
			t.Errorf("it imports %s", p)
		}
	}
}

// TestStrangersTransportIsShort: 150 lines that hold more than comments.
func TestStrangersTransportIsShort(t *testing.T) {
	src, err := os.ReadFile(vendor + "/dgram.go")
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	file := fset.AddFile("dgram.go", -1, len(src))
	var s scanner.Scanner
	s.Init(file, src, nil, 0) // without comments
	lines := map[int]bool{}
	for {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			break
		}
		for i := range 1 + strings.Count(strings.TrimSuffix(lit, "\n"), "\n") {
			lines[fset.Position(pos).Line+i] = true
		}
	}
	if n := len(lines); n > 150 || n < 50 {
		t.Errorf("%d lines of code", n)
	}
}

// TestGuideQuotesTheStrangersTransport: docs/writing-a-component.md walks through the
// code as it is, and shows collectives that pass their kit.
func TestGuideQuotesTheStrangersTransport(t *testing.T) {
	guide, err := os.ReadFile("../../docs/writing-a-component.md")
	if err != nil {
		t.Fatal(err)
	}
	var code string
	for _, name := range []string{vendor + "/dgram.go", vendor + "/dgram_test.go", "../../coll/colltest/page_test.go"} {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		code += string(b)
	}
	quotes := 0
	for i, part := range strings.Split(string(guide), "```") {
		if quote, ok := strings.CutPrefix(part, "go\n"); ok && i%2 == 1 {
			quotes++
			if !strings.Contains(code, quote) {
				t.Errorf("the guide quotes what is not there:\n%s", quote)
			}
		}
	}
	if quotes < 10 {
		t.Errorf("the guide has %d quotes", quotes)
	}
}
