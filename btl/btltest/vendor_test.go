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

// vendorModule is a transport in a module of its own, as third parties write them.
const vendorModule = "../../examples/vendor-btl"

// runGoInVendor runs the go command in the vendor's module.
func runGoInVendor(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = vendorModule
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// It fulfills the contract and carries ob1.
func TestVendorTransport_PassesTheKits(t *testing.T) {
	needs.Time(t)
	runGoInVendor(t, "vet", "./...")
	runGoInVendor(t, "test", "./...")
}

func TestVendorTransport_ImportsNothingInternal(t *testing.T) {
	for _, p := range strings.Fields(runGoInVendor(t, "list", "-f", `{{join .Imports " "}}`, ".")) {
		if strings.Contains("/"+p+"/", "/internal/") {
			t.Errorf("it imports %s", p)
		}
	}
}

// It has at most 150 lines besides comments.
func TestVendorTransport_IsShort(t *testing.T) {
	src, err := os.ReadFile(vendorModule + "/dgram.go")
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	file := fset.AddFile("dgram.go", -1, len(src))
	var s scanner.Scanner
	s.Init(file, src, nil, 0) // Without comments.
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

// docs/writing-a-component.md quotes the code verbatim, and shows collectives that pass their kit.
func TestGuide_QuotesTheVendorTransport(t *testing.T) {
	guide, err := os.ReadFile("../../docs/writing-a-component.md")
	if err != nil {
		t.Fatal(err)
	}
	var code string
	for _, name := range []string{vendorModule + "/dgram.go", vendorModule + "/dgram_test.go", "../../coll/colltest/page_test.go"} {
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
				t.Errorf("the guide quotes code that does not exist:\n%s", quote)
			}
		}
	}
	if quotes < 10 {
		t.Errorf("the guide has %d quotes", quotes)
	}
}
