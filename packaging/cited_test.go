package packaging

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// page matches the pages that messages cite.
var page = regexp.MustCompile(`\bdocs/[a-z0-9/-]+\.md\b`)

func TestInstall_PagesInMessages_AreInstalled(t *testing.T) {
	cited := citedPages(t, "..")
	if len(cited) < 5 {
		t.Fatalf("messages cite %d pages only: %v", len(cited), cited)
	}
	prefix := filepath.Join(t.TempDir(), "usr")
	run(t, sources(t), "make", "install", "PREFIX="+prefix)
	for name, position := range cited {
		if _, err := os.Stat(filepath.Join(prefix, "share/doc/ferry", name)); err != nil {
			t.Errorf("%s cites a page that is not installed: %v", position, err)
		}
	}
	for _, name := range []string{"ferry-component.1", "ferry-component-new.1"} {
		if _, err := os.Stat(filepath.Join(prefix, "share/man/man1", name)); err != nil {
			t.Error(err)
		}
	}
}

// citedPages returns the pages that string literals of the sources cite, each with a position.
func citedPages(t *testing.T, root string) map[string]string {
	t.Helper()
	cited := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "bin" || d.Name() == "testdata"):
			return filepath.SkipDir
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
				for _, name := range page.FindAllString(l.Value, -1) {
					cited[name] = fset.Position(l.Pos()).String()
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return cited
}
