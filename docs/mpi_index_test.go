package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// mpiABI is the list of all names of MPI's ABI. It lies beside the repository in CI, and is not part of it.
const mpiABI = "../../shared/facts/mpi-abi.tsv"

// mpiFunctions returns the names in testdata, without those for counts of 64 bits.
func mpiFunctions(t *testing.T) []string {
	t.Helper()
	b, err := os.ReadFile("testdata/mpi-functions.txt")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(b))
}

// mpiIndex returns the section of the page with the index.
func mpiIndex(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("mpi.md")
	if err != nil {
		t.Fatal(err)
	}
	_, index, found := strings.Cut(string(b), "\n## Index of MPI-4.1\n")
	if !found {
		t.Fatal("docs/mpi.md has no section \"Index of MPI-4.1\"")
	}
	return index
}

func TestMPIIndex_EveryFunction_HasOneRow(t *testing.T) {
	rows := map[string]int{}
	for line := range strings.Lines(mpiIndex(t)) {
		if cells := strings.Split(line, "|"); len(cells) == 4 && strings.TrimSpace(cells[2]) != "" {
			for _, name := range regexp.MustCompile("`(MPI_[A-Za-z0-9_]+)`").FindAllStringSubmatch(cells[1], -1) {
				rows[name[1]]++
			}
		}
	}
	functions := mpiFunctions(t)
	for _, name := range functions {
		if rows[name] != 1 {
			t.Errorf("docs/mpi.md: %s is in %d rows of the index; write it in one", name, rows[name])
		}
	}
	for name := range rows {
		if !slices.Contains(functions, name) {
			t.Errorf("docs/mpi.md: %s is not in the list of functions, testdata/mpi-functions.txt", name)
		}
	}
}

// The list has names that end in _c without the suffix.
func TestMPIIndex_List_EqualsTheABI(t *testing.T) {
	b, err := os.ReadFile(mpiABI)
	if os.IsNotExist(err) {
		t.Skipf("%s is not there (it is beside the clone in CI); testdata/mpi-functions.txt was not compared with it", mpiABI)
	}
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for line := range strings.Lines(string(b)) {
		if cells := strings.Split(line, "\t"); cells[0] == "function" {
			want = append(want, strings.TrimSuffix(cells[1], "_c"))
		}
	}
	slices.Sort(want)
	want = slices.Compact(want)
	got := mpiFunctions(t)
	for _, name := range want {
		if !slices.Contains(got, name) {
			t.Errorf("testdata/mpi-functions.txt lacks %s", name)
		}
	}
	if len(got) != len(want) {
		t.Errorf("testdata/mpi-functions.txt has %d names, and the ABI %d", len(got), len(want))
	}
}

// exportedNames returns the exported names of package mpi; those of methods begin with a dot.
func exportedNames(t *testing.T) map[string]bool {
	t.Helper()
	exported := map[string]bool{}
	entries, err := os.ReadDir("../mpi")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), "../mpi/"+e.Name(), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			addNames(exported, d)
		}
	}
	return exported
}

// The name of MPI_Alltoall_init would be AlltoallInit.
func TestMPIIndex_MissingFunctions_AreNotThere(t *testing.T) {
	exported, missing := exportedNames(t), 0
	for line := range strings.Lines(mpiIndex(t)) {
		cells := strings.Split(line, "|")
		if len(cells) != 4 {
			continue
		}
		here := strings.TrimSpace(cells[2])
		if !strings.HasPrefix(here, "planned") && !strings.HasPrefix(here, "not there") {
			continue
		}
		for _, m := range regexp.MustCompile("`MPI_([A-Za-z0-9_]+)`").FindAllStringSubmatch(cells[1], -1) {
			name := ""
			for part := range strings.SplitSeq(m[1], "_") {
				name += strings.ToUpper(part[:1]) + part[1:]
			}
			if missing++; exported[name] {
				t.Errorf("docs/mpi.md: MPI_%s is missing according to the index, and package mpi has %s", m[1], name)
			}
		}
	}
	if missing == 0 {
		t.Error("the index has no missing functions")
	}
}

// Rows name functions, types and methods of package mpi.
func TestMPIIndex_NamesOfFerry_Exist(t *testing.T) {
	exported := exportedNames(t)
	named := 0
	for _, m := range regexp.MustCompile("`(mpi|[a-z]+)\\.([A-Z][A-Za-z]*)`").FindAllStringSubmatch(mpiIndex(t), -1) {
		name := m[2]
		if m[1] != "mpi" {
			name = "." + name
		}
		if slices.Contains([]string{"os", "errors", "time"}, m[1]) {
			continue
		}
		if named++; !exported[name] {
			t.Errorf("docs/mpi.md: package mpi has no %s.%s", m[1], m[2])
		}
	}
	if named < 100 {
		t.Errorf("the index names %d functions of ferry", named)
	}
}

// addNames adds the names that a declaration declares; those of methods begin with a dot.
func addNames(names map[string]bool, d ast.Decl) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv != nil {
			names["."+d.Name.Name] = true
		} else {
			names[d.Name.Name] = true
		}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				names[s.Name.Name] = true
			case *ast.ValueSpec:
				for _, n := range s.Names {
					names[n.Name] = true
				}
			}
		}
	}
}
