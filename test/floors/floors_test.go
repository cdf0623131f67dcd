package floors

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/ferrympi/ferry"

// file is one Go file of the module, whatever its build tags.
type file struct {
	dir, name string // slash separated, relative to the root
	use       Use
	fset      *token.FileSet
	ast       *ast.File
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// files parses every Go file of the module.
func files(t *testing.T) []file {
	t.Helper()
	dir := root(t)
	var out []file
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); p != dir && (strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata" || name == "bin") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(p, ".go") {
			return nil
		}
		fset := token.NewFileSet()
		parsed, err := parser.ParseFile(fset, p, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, filepath.Dir(p))
		if err != nil {
			return err
		}
		f := file{dir: filepath.ToSlash(rel), name: path.Join(filepath.ToSlash(rel), d.Name()), fset: fset, ast: parsed}
		if strings.HasSuffix(p, "_test.go") {
			f.use = InternalTest
			if strings.HasSuffix(parsed.Name.Name, "_test") {
				f.use = ExternalTest
			}
		}
		out = append(out, f)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 20 {
		t.Fatalf("only %d Go files found below %s: the walk is wrong", len(out), dir)
	}
	return out
}

func imports(t *testing.T, f file) []string {
	t.Helper()
	var out []string
	for _, s := range f.ast.Imports {
		p, err := strconv.Unquote(s.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, p)
	}
	return out
}

func TestNoImportGoesUp(t *testing.T) {
	for _, f := range files(t) {
		for _, p := range imports(t, f) {
			to, ours := strings.CutPrefix(p, module+"/")
			if !ours || f.dir == to {
				continue
			}
			if err := Check(f.dir, to, f.use); err != nil {
				t.Errorf("%s: %v", f.name, err)
			}
		}
	}
}

func TestNoFileOutsideTheTable(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range files(t) {
		if seen[f.dir] {
			continue
		}
		seen[f.dir] = true
		if f.dir == "." {
			t.Errorf("%s: no Go files at the root, which shows the folders", f.name)
			continue
		}
		if _, err := Of(f.dir); err != nil {
			t.Errorf("%s: %v", f.name, err)
		}
	}
}

func TestTableNamesOnlyWhatExists(t *testing.T) {
	var dirs []string
	for _, g := range ground {
		dirs = append(dirs, "internal/"+g)
	}
	for _, r := range rows {
		dirs = append(dirs, r.dir)
	}
	for _, dir := range dirs {
		if _, err := os.Stat(filepath.Join(root(t), dir)); err != nil {
			t.Errorf("the table has a row for %s, which is not there", dir)
		}
	}
}

var update = flag.Bool("update", false, "write edges.txt as the imports are")

// Every edge between packages is written down, so that a change which adds one
// shows it to whoever reads the change.
func TestEdgesAreThoseOfTheList(t *testing.T) {
	edges := map[string]map[string]bool{}
	for _, f := range files(t) {
		if f.use != Code {
			continue
		}
		if edges[f.dir] == nil {
			edges[f.dir] = map[string]bool{}
		}
		for _, p := range imports(t, f) {
			if to, ours := strings.CutPrefix(p, module+"/"); ours {
				edges[f.dir][to] = true
			}
		}
	}
	var b strings.Builder
	for _, from := range slices.Sorted(maps.Keys(edges)) {
		if len(edges[from]) > 0 {
			fmt.Fprintf(&b, "%s: %s\n", from, strings.Join(slices.Sorted(maps.Keys(edges[from])), " "))
		}
	}
	if *update {
		if err := os.WriteFile("edges.txt", []byte(b.String()), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	list, err := os.ReadFile("edges.txt")
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(string(list), "\n")
	have := strings.Split(b.String(), "\n")
	for _, line := range have {
		if !slices.Contains(want, line) {
			t.Errorf("not in edges.txt: %s", line)
		}
	}
	for _, line := range want {
		if !slices.Contains(have, line) {
			t.Errorf("in edges.txt only: %s", line)
		}
	}
	if t.Failed() {
		t.Log("if the edges are meant to be: go test ./test/floors -update")
	}
}

// isProtobuf reports whether protoc-gen-go has made the file, which registers its messages in init
// and uses unsafe.
func isProtobuf(f file) bool { return strings.HasSuffix(f.name, ".pb.go") }

func TestUnsafeStaysOnTheGround(t *testing.T) {
	for _, f := range files(t) {
		if floor, err := Of(f.dir); err == nil && floor == Ground || isProtobuf(f) {
			continue
		}
		for _, p := range imports(t, f) {
			if p == "unsafe" || p == "C" {
				t.Errorf("%s imports %q: unsafe and cgo belong below internal, on the ground floor", f.name, p)
			}
		}
	}
}

func TestFrameworkNeedsTheStandardLibraryOnly(t *testing.T) {
	for _, f := range files(t) {
		if f.dir != "framework" || f.use != Code {
			continue
		}
		for _, p := range imports(t, f) {
			if strings.Contains(strings.Split(p, "/")[0], ".") {
				t.Errorf("%s imports %s", f.name, p)
			}
		}
	}
}

func TestOnlyConfigKnowsKoanf(t *testing.T) {
	for _, f := range files(t) {
		for _, p := range imports(t, f) {
			if strings.HasPrefix(p, "github.com/knadh/koanf") && !under(f.dir, "config") {
				t.Errorf("%s imports %s: package config is the only importer of koanf", f.name, p)
			}
		}
	}
}

// A library does nothing when its package is initialised, never ends the
// process, never prints to standard output and takes no signals.
func TestLibrariesLeaveTheProcessAlone(t *testing.T) {
	forbidden := map[string][]string{
		"os":        {"Exit", "Stdout"},
		"log":       {"Fatal", "Fatalf", "Fatalln", "Print", "Printf", "Println"},
		"fmt":       {"Print", "Printf", "Println"},
		"os/signal": {"Notify", "NotifyContext", "Ignore", "Reset"},
	}
	for _, f := range files(t) {
		floor, err := Of(f.dir)
		if err != nil || floor == Tools || f.use != Code || IsKit(f.dir) || f.ast.Name.Name == "main" || isProtobuf(f) {
			continue
		}
		names := map[string]string{} // local name of an import to its path
		for _, s := range f.ast.Imports {
			p, _ := strconv.Unquote(s.Path.Value)
			name := path.Base(p)
			if s.Name != nil {
				name = s.Name.Name
			}
			names[name] = p
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv == nil && n.Name.Name == "init" {
					t.Errorf("%s: func init in a library package", f.fset.Position(n.Pos()))
				}
			case *ast.SelectorExpr:
				if id, ok := n.X.(*ast.Ident); ok && slices.Contains(forbidden[names[id.Name]], n.Sel.Name) {
					t.Errorf("%s: %s.%s in a library package", f.fset.Position(n.Pos()), id.Name, n.Sel.Name)
				}
			}
			return true
		})
	}
}

// Dependencies that only the command, tests, and programs that start plugins may link.
var tools = []string{
	"testing", "plugin", "google.golang.org/grpc", "google.golang.org/protobuf", "github.com/hashicorp/go-plugin", "github.com/hashicorp/go-hclog", "github.com/spf13", "gonum.org",
	"github.com/HdrHistogram", "github.com/montanaflynn", "al.essio.dev", "github.com/prometheus", "go.opentelemetry.io", "pgregory.net/rapid", "go.uber.org/goleak", "github.com/rogpeppe",
	module + "/cmd", module + "/bootstrap/local/server", module + "/plugin",
}

// Users pay for the dependencies of a program, of package mpi, and of the contract that a compiled-in
// component of another module implements.
func TestPrograms_WithoutPlugins_LinkNoTools(t *testing.T) {
	for _, c := range []struct{ dir, pkg, imports string }{
		{".", "./examples/hello", module + "/mpi"},
		{".", "./mpi", module + "/components"},
		{"examples/vendor-udp", ".", module + "/btl"},
	} {
		deps := dependencies(t, c.dir, c.pkg)
		if !slices.Contains(deps, c.imports) {
			t.Errorf("%s in %s does not import %s", c.pkg, c.dir, c.imports)
		}
		for _, d := range deps {
			for _, bad := range tools {
				if under(d, bad) {
					t.Errorf("%s in %s links %s", c.pkg, c.dir, d)
				}
			}
		}
	}
}

// dependencies lists the packages that a package links.
func dependencies(t *testing.T, dir, pkg string) []string {
	t.Helper()
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Fatalf("the go command is needed: %v", err)
	}
	cmd := exec.CommandContext(t.Context(), goTool, "list", "-deps", pkg)
	cmd.Dir = filepath.Join(root(t), dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	return strings.Fields(string(out))
}

// The table itself: edges that must be refused, and their legal neighbours.
func TestForbiddenEdgesAreRefused(t *testing.T) {
	for _, c := range []struct {
		from, to string
		use      Use
		ok       bool
	}{
		{"mpi", "components", Code, true},
		{"components", "mpi", Code, false},
		{"pml/ob1", "btl", Code, true},
		{"pml/ob1", "btl/shm", Code, false},
		{"pml/ob1", "btl/shm", InternalTest, false},
		{"pml/ob1", "btl/shm", ExternalTest, true},
		{"pml/ob1", "pml/pmltest", InternalTest, true},
		{"pml/ob1", "pml/pmltest", Code, false},
		{"btl/shm", "btl/self", Code, false},
		{"btl/shm", "btl/shm/wire", Code, true},
		{"btl", "progress", Code, true},
		{"progress", "internal/doorbell", Code, true},
		{"internal/ring", "framework", Code, false},
		{"framework", "btl", Code, false},
		{"coll/basic", "pml/ob1", Code, false},
		{"bootstrap/local/server", "bootstrap/internal/wire", Code, true},
		{"bootstrap/local", "bootstrap/internal/join", Code, true},
		{"bootstrap/bootstraptest", "bootstrap", Code, true},
		{"cmd/ferry/internal/launch", "bootstrap/local/server", Code, true},
		{"cmd/ferry/internal/run", "cmd/ferry/internal/launch", Code, true},
		{"cmd/ferry/internal/run", "examples/hello", Code, false},
		{"mpi", "cmd/ferry/internal/launch", Code, false},
		{"mpi", "bootstrap/local/localtest", ExternalTest, true},
		{"examples/vendor-btl", "btl", Code, true},
		{"examples/vendor-btl", "btl/btltest", InternalTest, true},
		{"examples/vendor-btl", "internal/ring", Code, false},
		{"otel", "mpi", Code, true},
		{"otel/examples/prometheus", "otel", Code, true},
		{"otel", "internal/procstat", Code, false},
		{"mpi", "otel", Code, false},
		{"cmd/ferry", "otel", Code, false},
		{"somewhere", "mpi", Code, false},
	} {
		if err := Check(c.from, c.to, c.use); (err == nil) != c.ok {
			t.Errorf("Check(%s, %s, %d) = %v, want allowed: %t", c.from, c.to, c.use, err, c.ok)
		}
	}
}
