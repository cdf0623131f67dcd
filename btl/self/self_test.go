package self

import (
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/ferrympi/ferry/btl/btltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestContract(t *testing.T) {
	btltest.Cases(btltest.Subject{Component: Component()}).Run(t)
}

// TestSmallestRingKeepsTheContract: frames come near to the size of the ring.
func TestSmallestRingKeepsTheContract(t *testing.T) {
	btltest.Cases(btltest.Subject{Component: Component(), Params: func(_ int, p any) { p.(*params).RingSize = 4 << 10 }}).Run(t)
}

// TestGuideQuotesThisPackage: docs/writing-a-component.md walks through the code
// as it is.
func TestGuideQuotesThisPackage(t *testing.T) {
	guide, err := os.ReadFile("../../docs/writing-a-component.md")
	if err != nil {
		t.Fatal(err)
	}
	var code string
	for _, name := range []string{"self.go", "self_test.go"} {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		code += string(b)
	}
	walk, _, _ := strings.Cut(string(guide), "\n## What a network adds")
	quotes := 0
	for i, part := range strings.Split(walk, "```") {
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
