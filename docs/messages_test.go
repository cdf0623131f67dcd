package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestMessagesAreNative searches string literals for the phrases that `make lint` refuses in pages and comments, because
// vale does not read literals.
func TestMessagesAreNative(t *testing.T) {
	var style struct{ Tokens []string }
	b, err := os.ReadFile("../scripts/prose/ferry/Translated.yml")
	if err == nil {
		err = yaml.Unmarshal(b, &style)
	}
	if err != nil || len(style.Tokens) == 0 {
		t.Fatalf("%d phrases: %v", len(style.Tokens), err)
	}
	phrase, err := regexp.Compile(`(?i)\b(?:` + strings.Join(style.Tokens, "|") + `)\b`)
	if err != nil {
		t.Fatal(err)
	}
	literals := 0
	err = filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "bin") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			l, ok := n.(*ast.BasicLit)
			if !ok || l.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(l.Value)
			if err != nil || !strings.Contains(text, " ") {
				return true
			}
			literals++
			if found := phrase.FindString(text); found != "" {
				t.Errorf("%v: %q reads like a translation (scripts/prose/ferry/Translated.yml)", fset.Position(l.Pos()), found)
			}
			return true
		})
		return nil
	})
	if err != nil || literals < 1000 {
		t.Fatalf("%d texts: %v", literals, err)
	}
}
