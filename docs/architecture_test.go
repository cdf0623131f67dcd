package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var braces = regexp.MustCompile(`^(.*)\{(.*)\}(.*)$`)

// TestArchitecture_Paths_Exist checks the files and folders that ARCHITECTURE.md and design.md name in code spans.
func TestArchitecture_Paths_Exist(t *testing.T) {
	paths := 0
	for _, page := range []string{"../ARCHITECTURE.md", "design.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, span := range codeSpan.FindAllString(string(text), -1) {
			path := strings.Trim(span, "`")
			top, _, hasFolder := strings.Cut(path, "/")
			if info, err := os.Stat(filepath.Join("..", top)); !hasFolder || err != nil || !info.IsDir() {
				continue
			}
			names := []string{path}
			if m := braces.FindStringSubmatch(path); m != nil {
				names = nil
				for _, part := range strings.Split(m[2], ",") {
					names = append(names, m[1]+part+m[3])
				}
			}
			for _, name := range names {
				paths++
				if _, err := os.Stat(filepath.Join("..", name)); err != nil {
					t.Errorf("%s: %v", page, err)
				}
			}
		}
	}
	if paths < 50 {
		t.Errorf("only %d paths were found", paths)
	}
}
