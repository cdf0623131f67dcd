package component

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/cmd/ferry/internal/exit"
)

func TestNew_Template_EqualsExample(t *testing.T) {
	for _, suffix := range []string{".go", "_test.go"} {
		example, err := os.ReadFile("../../../../examples/vendor-btl/dgram" + suffix)
		if err != nil {
			t.Fatal(err)
		}
		text, err := sources.ReadFile("btl/btl" + suffix + ".txt")
		if err != nil || string(text) != strings.ReplaceAll(string(example), "dgram", "NAME") {
			t.Errorf("btl%s.txt is not examples/vendor-btl: run `go generate ./cmd/ferry/internal/component` (%v)", suffix, err)
		}
	}
}

func TestNew_Module_PassesKits(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := command("new", "btl", "acme"); err != nil {
		t.Fatal(err)
	}
	if err := command("check", "./acme", "--timeout", "1m", "--junit", "report.xml", "--cases", "^btltest/[A-F]"); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("report.xml")
	if err == nil {
		err = xml.Unmarshal(text, new(struct{}))
	}
	if err != nil || !strings.Contains(string(text), "ob1+acme") || strings.Contains(string(text), "<failure") {
		t.Errorf("%v\n%s", err, text)
	}
	if err := command("new", "btl", "acme"); err == nil {
		t.Error("a folder that exists was written into")
	}
}

func TestCheck_BrokenComponent_Fails(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := command("new", "btl", "acme"); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("acme", "acme.go")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	broken := strings.Replace(string(text), "p.inbound.Frame(body)", "p.inbound.Frame(body[:1])", 1)
	if err := os.WriteFile(path, []byte(broken), 0o600); err != nil {
		t.Fatal(err)
	}
	err = command("check", "./acme", "--cases", "^btltest/FramesOf")
	if status, _ := exit.Of(err); err == nil || status == exit.Usage {
		t.Errorf("status %d: %v", status, err)
	}
}

func TestNew_InvalidKindOrName_IsRefused(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, args := range [][]string{{"pml", "x"}, {"btl", "X"}, {"btl", "../x"}} {
		err := command(append([]string{"new"}, args...)...)
		if status, _ := exit.Of(err); status != exit.Usage {
			t.Errorf("%q: %v", args, err)
		}
	}
	if left, err := os.ReadDir("."); err != nil || len(left) > 0 {
		t.Errorf("%v was written (%v)", left, err)
	}
}
