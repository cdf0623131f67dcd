package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestSplitIdentifier_Words(t *testing.T) {
	for name, want := range map[string]string{"isBTLStranger": "is BTL Stranger", "strangers": "strangers", "most_Errands": "most  Errands", "V2Chooser": "V2 Chooser"} {
		if got := splitIdentifier(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestScan_EachKindOfText_IsSearched(t *testing.T) {
	const source = "package p\n\n// The crowded ring.\nvar myChooser = \"the stranger\\n\"\n\nvar strangeness, mtl = 1, `a\nflatters`\n"
	var lines []int
	for _, f := range scanGo("p.go", []byte(source)) {
		lines = append(lines, f.line)
	}
	if want := []int{3, 4, 4, 7}; !slices.Equal(lines, want) {
		t.Errorf("lines %v, want %v", lines, want)
	}
	const page = "Nobody waits, `nobody`.\n\n    nobody\n\n```\nnobody\n```\n"
	if found := scanPage("p.md", page); len(found) != 1 || found[0].line != 1 {
		t.Errorf("page: %v", found)
	}
}

func TestExceptions_Allow_TermBelowPath(t *testing.T) {
	const text = "# comment\nnobody docs/a quotes a name\n* docs/b.md lists words\n"
	list, err := parseExceptions(text)
	if err != nil || len(list) != 2 {
		t.Fatalf("%v, error %v", list, err)
	}
	for _, c := range []struct {
		term, path string
		want       bool
	}{{"nobody", "docs/a/x.md", true}, {"nobody", "docs/ab.md", false}, {"whom", "docs/a/x.md", false}} {
		if got := allowed(list, c.term, c.path); got != c.want {
			t.Errorf("%s in %s: %v", c.term, c.path, got)
		}
	}
	if got := pruned(text, list); got != "# comment\nnobody docs/a quotes a name\n" {
		t.Errorf("pruned: %q", got)
	}
	for _, bad := range []string{"nobody docs", "unknown docs reason", "nobody"} {
		if _, err := parseExceptions(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestLongSubjects_SinceMergeBase(t *testing.T) {
	dir := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@example.org"}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	long := strings.Repeat("x", mostSubject+1)
	git("init", "-q", "-b", "main")
	git("commit", "-q", "--allow-empty", "-m", long)
	if lines := longSubjects(dir); lines != nil {
		t.Errorf("without a landed state: %q", lines)
	}
	git("update-ref", "refs/remotes/origin/main", "HEAD")
	git("commit", "-q", "--allow-empty", "-m", long[1:]+"\n\n"+long)
	git("commit", "-q", "--allow-empty", "-m", long)
	if lines := longSubjects(dir); len(lines) != 1 || !strings.Contains(lines[0], "subject of 73 characters") {
		t.Errorf("%q, want the last commit", lines)
	}
}

func TestScanTree_SkipsTestdata(t *testing.T) {
	dir := t.TempDir()
	for path, text := range map[string]string{"a.md": "nobody", "testdata/b.md": "nobody", "c/d.go": "package d // whom\n", "e.txt": "whom"} {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("git", "-C", dir, "init", "-q").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	found, err := scanTree(dir, nil)
	if err != nil || len(found) != 2 {
		t.Errorf("%v, error %v, want those of a.md and c/d.go", found, err)
	}
}
