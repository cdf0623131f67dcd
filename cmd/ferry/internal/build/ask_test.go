package build

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/cmd/ferry/internal/exit"
	"github.com/ferrympi/ferry/cmd/ferry/internal/gotool"
	"github.com/ferrympi/ferry/framework"
)

// vendor writes a module with a component of the given name, which is that of its last element
// too. It returns the folder.
func vendor(t *testing.T, parent, name, code, directives string) string {
	t.Helper()
	root, err := filepath.Abs("../../../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(parent, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{
		"go.mod": "module corp.invalid/" + name + "\n\ngo " + gotool.GoVersion + "\n\n" + gotool.Replace("github.com/ferrympi/ferry", root) + directives,
		"go.sum": string(gotool.Sums(root)),
		"component.go": fmt.Sprintf("package %s\n\nimport \"github.com/ferrympi/ferry/framework\"\n\ntype component struct{}\n\n"+
			"func (component) Info() framework.Info { return framework.Info{Kind: framework.BTL, Name: %q, Priority: 7} }\n\n"+
			"func Component() component { return component{} }\n", name, name),
		"code.go": "package " + name + "\n\n" + code,
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// answers returns the Infos of the components in folders, without the network.
func answers(t *testing.T, folders ...string) ([]framework.Info, error) {
	t.Helper()
	t.Setenv("GOPROXY", "off")
	sources, err := gotool.Find("../../../..")
	if err != nil {
		t.Fatal(err)
	}
	b := &builder{Options: Options{WithPackages: folders}, sources: sources, moduleDir: t.TempDir()}
	b.Go = gotool.Go{Dir: b.moduleDir}
	if err := b.module(t.Context()); err != nil {
		return nil, err
	}
	err = b.ask(t.Context())
	return b.componentInfos, err
}

// expectOne compares the answers with the one component of that name.
func expectOne(t *testing.T, name string, infos []framework.Info, err error) {
	t.Helper()
	if err != nil || len(infos) != 1 || infos[0].Name != name || infos[0].Priority != 7 {
		t.Errorf("%+v: %v", infos, err)
	}
}

func TestAsk_PackagePrintsWhenInitialized_AnswersAreRead(t *testing.T) {
	dir := vendor(t, t.TempDir(), "noisy", "import (\n\t\"fmt\"\n\t\"os\"\n)\n\nfunc init() { fmt.Println(\"[driver]\"); fmt.Fprintln(os.Stderr, \"{}\") }\n", "")
	infos, err := answers(t, dir)
	expectOne(t, "noisy", infos, err)
}

func TestAsk_OtherTarget_ProgramRunsHere(t *testing.T) {
	target := "arm64"
	if runtime.GOARCH == target {
		target = "amd64"
	}
	t.Setenv("GOARCH", target)
	t.Setenv("CC", "no-such-compiler")
	infos, err := answers(t, vendor(t, t.TempDir(), "acme", "", ""))
	expectOne(t, "acme", infos, err)
}

func TestAsk_PackageEndsTheProcess_ErrorNamesTheReason(t *testing.T) {
	parent := t.TempDir()
	for name, want := range map[string]string{
		vendor(t, parent, "exits", "import \"os\"\n\nfunc init() { os.Exit(0) }\n", ""): "wrote no list",
		vendor(t, parent, "panics", "func init() { panic(\"no such device\") }\n", ""):  "no such device",
	} {
		if _, err := answers(t, name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}

// library writes a module that is in no registry, with a package of a constant.
func library(t *testing.T, parent, folder string) {
	t.Helper()
	dir := filepath.Join(parent, folder)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"go.mod": "module corp.invalid/private\n\ngo " + gotool.GoVersion + "\n", "p.go": "package private\n\nconst Name = 1\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

const usePrivate = "import \"corp.invalid/private\"\n\nvar _ = private.Name\n"

func requirePrivate(folder string) string {
	return "\nrequire corp.invalid/private v1.2.3\n\nreplace corp.invalid/private => ../" + folder + "\n"
}

func TestModule_VendorReplacesAModule_ReplacementIsCarriedOver(t *testing.T) {
	parent := t.TempDir()
	library(t, parent, "private")
	infos, err := answers(t, vendor(t, parent, "repl", usePrivate, requirePrivate("private")))
	expectOne(t, "repl", infos, err)
}

func TestModule_VendorsReplaceOneModuleDifferently_IsAUsageError(t *testing.T) {
	parent := t.TempDir()
	library(t, parent, "private")
	library(t, parent, "fork")
	_, err := answers(t, vendor(t, parent, "one", usePrivate, requirePrivate("private")), vendor(t, parent, "two", usePrivate, requirePrivate("fork")))
	if err == nil || !strings.Contains(err.Error(), "corp.invalid/one and corp.invalid/two replace \"corp.invalid/private\"") {
		t.Fatal(err)
	}
	if status, _ := exit.Of(err); status != exit.Usage {
		t.Errorf("status %d: %v", status, err)
	}
}

func TestModule_VendorReplacesAnotherGivenFolder_FolderWins(t *testing.T) {
	parent := t.TempDir()
	first := vendor(t, parent, "first", "", "")
	second := vendor(t, parent, "second", "import first \"corp.invalid/first\"\n\nvar _ = first.Component\n", "\nrequire corp.invalid/first v0.0.0\n\nreplace corp.invalid/first => ../none\n")
	if err := os.Symlink("first", filepath.Join(parent, "none")); err != nil {
		t.Fatal(err)
	}
	infos, err := answers(t, first, second)
	if err != nil || len(infos) != 2 {
		t.Errorf("%+v: %v", infos, err)
	}
}
