package advisories

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
)

const listFile = "advisories.txt"

func readList(t *testing.T) []Advisory {
	t.Helper()
	f, err := os.Open(listFile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	list, err := Parse(f)
	if err != nil || len(list) == 0 {
		t.Fatalf("%s: %d advisories, %v", listFile, len(list), err)
	}
	return list
}

// goMods returns the go.mod files of the repository.
func goMods(t *testing.T) []string {
	t.Helper()
	var files []string
	for _, pattern := range []string{"go.mod", "*/go.mod", "*/*/go.mod"} {
		found, err := filepath.Glob(filepath.Join("../..", pattern))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	if len(files) < 4 {
		t.Fatalf("only %q: the root, otel and examples have go.mod files", files)
	}
	return files
}

// known returns the lines about versions that a go.mod file requires.
func known(t *testing.T, file string, text []byte, list []Advisory) (lines []string) {
	t.Helper()
	mod, err := modfile.ParseLax(file, text, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range mod.Require {
		for _, a := range list {
			if a.Module == r.Mod.Path && a.Affects(r.Mod.Version) {
				lines = append(lines, r.Mod.String()+": "+a.IDs+", fixed in "+a.Fixed)
			}
		}
	}
	return lines
}

func TestAttack_KnownVulnerabilities_AreInNoRequiredModule(t *testing.T) {
	if *vulndb != "" {
		renew(t)
	}
	list := readList(t)
	for _, file := range goMods(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range known(t, file, text, list) {
			if !isUnimported(t, filepath.Dir(file), line) {
				t.Errorf("%s: %s; go get a newer version", file, line)
			}
		}
	}
}

// unimported has the advisories without a fix that concern only these packages and those below them.
var unimported = map[string]string{"GO-2026-5932": "golang.org/x/crypto/openpgp"}

// isUnimported reports whether a line of known is about packages that neither the module in dir
// nor its tools import.
func isUnimported(t *testing.T, dir, line string) bool {
	t.Helper()
	for id, path := range unimported {
		if !strings.Contains(line, id) {
			continue
		}
		cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "./...", "tool")
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly")
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: go list: %v", dir, err)
		}
		return !strings.Contains("\n"+string(out), "\n"+path+"\n") && !strings.Contains("\n"+string(out), "\n"+path+"/")
	}
	return false
}

func TestAdvisories_VersionWithKnownVulnerability_IsNamed(t *testing.T) {
	lines := known(t, "go.mod", []byte("module x\nrequire golang.org/x/image v0.30.0\n"), readList(t))
	if !strings.Contains(strings.Join(lines, "\n"), "golang.org/x/image@v0.30.0: GO-2026-6222,CVE-2026-46603, fixed in v0.45.0") {
		t.Errorf("%q", lines)
	}
}

func TestAffects_Range_ExcludesTheFixedVersion(t *testing.T) {
	between := Advisory{Introduced: "v1.2.0", Fixed: "v1.3.0"}
	for version, want := range map[string]bool{"v1.1.9": false, "v1.2.0": true, "v1.3.0-rc1": true, "v1.3.0": false, "v0.0.0-20200101000000-abcdefabcdef": false} {
		if between.Affects(version) != want {
			t.Errorf("%s: %v", version, !want)
		}
	}
	if !(Advisory{Introduced: "v0.0.0-0"}).Affects("v9.0.0") {
		t.Error("an advisory without a fix ends")
	}
}
