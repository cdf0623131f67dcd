package elfcheck

import (
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/internal/needs"
)

// compile builds a library called name that needs others in dir.
func compile(t *testing.T, dir, name string, others ...string) string {
	t.Helper()
	needs.Program(t, "gcc", "gcc and libc6-dev")
	path := filepath.Join(dir, name)
	args := []string{"-shared", "-fPIC", "-x", "c", "-o", path, "/dev/null", "-x", "none", "-Wl,--no-as-needed", "-Wl,-rpath,$ORIGIN", "-Wl,-soname," + name}
	for _, o := range others {
		args = append(args, filepath.Join(dir, o))
	}
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

func size(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

func TestCheck_TruncatedLibrary_NamesFile(t *testing.T) {
	path := compile(t, t.TempDir(), "libone.so")
	whole := size(t, path)
	if err := Check(path); err != nil {
		t.Fatalf("the whole library: %v", err)
	}
	for n := whole - 1; n > int64(len(elf.ELFMAG)); n -= max(1, n/50) {
		if err := os.Truncate(path, n); err != nil {
			t.Fatal(err)
		}
		if err := Check(path); err == nil || !strings.HasPrefix(err.Error(), path+" is damaged: ") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%d bytes of %d: %v", n, whole, err)
		}
	}
}

// The headers are complete and a segment is truncated.
func TestCheck_SegmentBeyondFile_NamesFile(t *testing.T) {
	path := compile(t, t.TempDir(), "libone.so")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const fileSize = 64 + 32 // Of the first segment, behind the file header.
	binary.LittleEndian.PutUint64(data[fileSize:], uint64(len(data))+1)
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := Check(path); err == nil || !strings.Contains(err.Error(), "a segment ends at") {
		t.Errorf("%v", err)
	}
}

func TestCheck_NeededLibraryOrModuleTruncated_NamesThatFile(t *testing.T) {
	for _, broken := range []string{"libneeded.so", "modules/libmodule.so"} {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "modules"), 0o777); err != nil {
			t.Fatal(err)
		}
		compile(t, dir, "libneeded.so")
		compile(t, filepath.Join(dir, "modules"), "libmodule.so")
		path := compile(t, dir, "libfirst.so", "libneeded.so")
		if err := Check(path, "modules/*.so"); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, broken)
		if err := os.Truncate(file, size(t, file)/2); err != nil {
			t.Fatal(err)
		}
		if err := Check(path, "modules/*.so"); err == nil || !strings.HasPrefix(err.Error(), file+" is damaged") {
			t.Errorf("%v", err)
		}
	}
}

// The linker reports the reason for these files.
func TestCheck_NoLibrary_LeftToLinker(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text.so")
	if err := os.WriteFile(text, []byte("a text"), 0o666); err != nil {
		t.Fatal(err)
	}
	other := compile(t, dir, "libother.so")
	data, err := os.ReadFile(other)
	if err != nil {
		t.Fatal(err)
	}
	binary.LittleEndian.PutUint16(data[18:], uint16(elf.EM_S390))
	if err := os.WriteFile(other, data, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{text, other, dir, filepath.Join(dir, "none.so"), "libnosuch.so.1"} {
		if err := Check(path); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestCheck_NoRegularFile_Fails(t *testing.T) {
	if err := Check("/dev/zero"); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("%v", err)
	}
}

// A FIFO without a writer stands for such a file system.
func TestCheck_FileDoesNotAnswer_BlocksOneGoroutine(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "lib.so")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- Check(fifo) }()
	if err := exec.Command("true").Run(); err != nil { // It needs a thread.
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		t.Fatalf("Check did not wait for the file: %v", err)
	default:
	}
	w, err := os.OpenFile(fifo, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := <-ended; err == nil {
		t.Error("Check accepted a FIFO")
	}
}

// The test compares the search with the files that the linker has mapped into a program.
func TestLibrary_SystemLibrary_FoundAsLinkerDoes(t *testing.T) {
	needs.Program(t, "gcc", "gcc and libc6-dev")
	dir := t.TempDir()
	program := filepath.Join(dir, "maps")
	source := filepath.Join(dir, "maps.c")
	if err := os.WriteFile(source, []byte("#include <stdio.h>\nint main(void) { FILE *f = fopen(\"/proc/self/maps\", \"r\"); for (int c; (c = getc(f)) != EOF;) putchar(c); }\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-o", program, source, "-Wl,--no-as-needed", "-lm").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	maps, err := exec.Command(program).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"libc.so.6", "libm.so.6"} {
		c := checker{newPaths(), map[string]bool{}}
		path, err := c.checkLibrary(name, nil)
		if err != nil || path == "" || !strings.Contains(string(maps), resolveLinks(path)) {
			t.Errorf("%s: %s, %v", name, path, err)
		}
	}
}

func FuzzParseCache(f *testing.F) {
	text, _ := os.ReadFile(cacheFile)
	f.Add(text)
	f.Add([]byte(cacheMagic + strings.Repeat("\xff", cacheHeader+cacheEntry)))
	f.Fuzz(func(_ *testing.T, text []byte) { parseCache(text) })
}
