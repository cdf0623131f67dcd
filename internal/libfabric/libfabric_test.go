package libfabric

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/internal/needs"
)

func TestLoad_MissingLibrary_ErrorNamesIt(t *testing.T) {
	for _, path := range []string{"libnosuchfabric.so.1", "/nonexistent/libfabric.so.1", "libc.so.6"} {
		_, err := Load(path)
		if errors.Is(err, ErrNotBuilt) {
			t.Skip(err)
		}
		if err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestVersion_After_Compares(t *testing.T) {
	for v, old := range map[Version]bool{{1, 16}: true, {1, 17}: false, {1, 22}: false, {2, 0}: false, {0, 99}: true} {
		if Oldest.After(v) != old {
			t.Errorf("%v is too old: %t", v, !old)
		}
	}
}

func TestInfos_UnknownProvider_ReturnsNone(t *testing.T) {
	l, err := Load("libfabric.so.1")
	if err != nil {
		t.Skip(err)
	}
	infos, err := l.Infos("nosuch")
	if err != nil || len(infos.List) > 0 {
		t.Errorf("%v, %v", infos, err)
	}
}

func TestLoad_OtherLibrary_IsUnloaded(t *testing.T) {
	const other = "libanl.so.1"
	mapped := func() bool {
		text, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(text), other)
	}
	if mapped() {
		t.Skip("this program has it for another reason")
	}
	_, err := Load(other)
	if err == nil || !strings.Contains(err.Error(), "it has no fi_getinfo") {
		t.Skip(err)
	}
	if mapped() {
		t.Errorf("%s stays loaded", other)
	}
}

// A layout or a constant that differs from libfabric's would corrupt memory. For headers of another version use CPATH=DIR go test -count=1, where
// DIR contains rdma/fabric.h.
func TestABI_Headers_AreEqual(t *testing.T) {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		needs.Missing(t, "install gcc: %v", err)
	}
	if out, err := exec.Command(gcc, "-E", "-include", "rdma/fi_tagged.h", "-x", "c", "/dev/null").CombinedOutput(); err != nil {
		needs.Missing(t, "install libfabric-dev: %s", out)
	}
	program := filepath.Join(t.TempDir(), "abi")
	out, err := exec.Command(gcc, "-Wall", "-Wextra", "-Werror", "-o", program, "testdata/abi.c").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := exec.Command(program).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
