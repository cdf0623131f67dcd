package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	inlineLink = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	codeSpan   = regexp.MustCompile("`[^`]*`")
	heading    = regexp.MustCompile(`(?m)^#+ (.+)$`)
	linkText   = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	notOfSlug  = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

func TestPages_Links_HaveTargets(t *testing.T) {
	var pages []string
	for _, pattern := range []string{"*.md", "*/*.md", "../*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range inlineLink.FindAllStringSubmatch(codeSpan.ReplaceAllString(string(text), ""), -1) {
			path, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(path, "://") || strings.HasPrefix(path, "mailto:") {
				continue
			}
			target := filepath.Join(filepath.Dir(page), path)
			if path == "" {
				target = page
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: link %s: %v", page, m[1], err)
			} else if anchor != "" && !hasAnchor(t, target, anchor) {
				t.Errorf("%s: link %s: %s has no such heading", page, m[1], target)
			}
		}
	}
	if len(pages) < 20 {
		t.Errorf("only %d pages were read", len(pages))
	}
}

// hasAnchor reports whether a page has a heading of this anchor, as forges make it.
func hasAnchor(t *testing.T, page, anchor string) bool {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range heading.FindAllStringSubmatch(string(text), -1) {
		title := strings.ToLower(linkText.ReplaceAllString(m[1], "$1"))
		if strings.ReplaceAll(notOfSlug.ReplaceAllString(title, ""), " ", "-") == anchor {
			return true
		}
	}
	return false
}
