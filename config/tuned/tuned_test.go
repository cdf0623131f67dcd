package tuned

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var here = Machine{CPU: "AMD EPYC, family 26, model 2", Processors: 2, Kernel: "6.1"}

func result() *Result {
	return &Result{
		Format: Format, Machine: here, Ferry: "0.1.0", Measured: time.Date(2026, 11, 20, 13, 0, 0, 0, time.UTC),
		Params:  []Param{{Name: "a.b", Default: "1KiB", Value: "2KiB", Gain: 0.1}, {Name: "a.c", Default: "auto", Value: "auto"}},
		Figures: []byte(`{"figures": [1]}`),
	}
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache", "ferry", "tune")
	if Exists(dir) || Exists("") {
		t.Error("nothing has been written, and something is there")
	}
	if err := Prepare(dir); err != nil {
		t.Fatal(err)
	}
	file := here.File(dir)
	if _, err := Read(file, here); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	want := result()
	for range 2 { // the second time it is replaced
		if err := want.Write(file); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := os.ReadFile(file); err != nil || !strings.HasSuffix(string(text), string(want.Figures)+"\n") {
		t.Errorf("the figures are not in the file: %s, %v", text, err)
	}
	want.Figures = nil
	got, err := Read(file, here)
	if err != nil || !Exists(dir) {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if c := got.Changed(); len(c) != 1 || c[0].Name != "a.b" {
		t.Errorf("changed: %v", c)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestFilesOfOtherMachinesAndVersionsAreRefused(t *testing.T) {
	file := here.File(t.TempDir())
	for says, change := range map[string]func(*Result){
		"format 1":        func(r *Result) { r.Format = 1 },
		"another machine": func(r *Result) { r.Machine.CPU = "other" },
		"4 processors":    func(r *Result) { r.Machine.Processors = 4 },
		"under kernel 5":  func(r *Result) { r.Machine.Kernel = "5.0" },
	} {
		r := result()
		change(r)
		if err := r.Write(file); err != nil {
			t.Fatal(err)
		}
		if got, err := Read(file, here); got != nil || err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, %v", says, got, err)
		}
	}
}

func TestDamagedFilesAreRefusedAndNeverWaitedFor(t *testing.T) {
	dir := t.TempDir()
	for text, says := range map[string]string{
		"":                                "damaged",
		"{":                               "damaged",
		"[]":                              "damaged",
		"{}":                              "format 0",
		`{"format": 1, "params": 5}`:      "damaged",
		strings.Repeat(" ", maxFile+1):    "at most",
		`{"format": 1, "measured": "now"`: "damaged",
	} {
		file := filepath.Join(dir, "x.json")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(file, here); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.20q: %v", text, err)
		}
	}
	if _, err := Read(filepath.Join(dir, "x.json", "below"), here); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("below a file: %v", err)
	}
	if _, err := Read(dir, here); err == nil {
		t.Error("a directory was read")
	}
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(pipe, here); err == nil || !strings.Contains(err.Error(), "regular") {
		t.Errorf("a pipe: %v", err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"format":1,"machine":{"cpu":"a","processors":2,"kernel":"k"},"params":[{"name":"x","value":"1"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		file := filepath.Join(t.TempDir(), "x.json")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if r, err := Read(file, here); (r == nil) == (err == nil) {
			t.Errorf("%v, %v", r, err)
		}
	})
}

// Ranks that start while a result is replaced must see the old one or the new one.
func TestReadersNeverSeeAPart(t *testing.T) {
	file := here.File(t.TempDir())
	if err := result().Write(file); err != nil {
		t.Fatal(err)
	}
	var readers sync.WaitGroup
	done := make(chan struct{})
	for range 2 {
		readers.Go(func() {
			for {
				if _, err := Read(file, here); err != nil {
					t.Error(err)
					return
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for range 200 {
		if err := result().Write(file); err != nil {
			t.Error(err)
		}
	}
	close(done)
	readers.Wait()
}

func TestAFailedWriteLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "taken")
	if err := os.MkdirAll(filepath.Join(file, "full"), 0o700); err != nil { // a rename can't replace it
		t.Fatal(err)
	}
	if err := result().Write(file); err == nil {
		t.Error("a directory was replaced")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if err := Prepare(filepath.Join(file, "full")); err != nil {
		t.Error(err)
	}
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Prepare(filepath.Join(plain, "ferry")); err == nil {
		t.Error("a directory below a file")
	}
}

func TestTheDirectoryFollowsTheEnvironment(t *testing.T) {
	for _, c := range []struct{ xdg, home, want string }{
		{"/c", "/h", "/c/ferry/tune"},
		{"", "/h", "/h/.cache/ferry/tune"},
		{"relative", "/h", "/h/.cache/ferry/tune"},
		{"", "", ""},
		{"relative", "also", ""},
	} {
		if got := Dir(c.xdg, c.home); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

func TestEqualMachinesShareAFileAndOthersDont(t *testing.T) {
	if got := here.File("/d"); got != "/d/amd-epyc-family-26-model-2-x2.json" {
		t.Error(got)
	}
	newer := here
	newer.Kernel = "7.0"
	if newer.File("") != here.File("") {
		t.Error("a new kernel must find the old file, to say that it is stale")
	}
	larger := here
	larger.Processors = 4
	if larger.File("") == here.File("") {
		t.Error("machines of different size share a file")
	}
	if got := (Machine{CPU: strings.Repeat("../x", 100), Processors: 1}).File("/d"); filepath.Dir(got) != "/d" || len(got) > 200 {
		t.Error(got)
	}
	if first, second := ThisMachine(), ThisMachine(); first != second || first.Processors < 1 {
		t.Errorf("this machine is %+v, and then %+v", first, second)
	}
}

func BenchmarkThisMachine(b *testing.B) {
	for b.Loop() {
		ThisMachine()
	}
}
