package main

import (
	"fmt"
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"
)

// A finding is one use of a term.
type finding struct {
	path string
	line int
	text string
	term term
}

func (f finding) String() string {
	return fmt.Sprintf("%s:%d: %q: write %s (docs/terms.md)", f.path, f.line, f.text, f.term.write)
}

// scanFile returns the terms in a Go file or a page, without regard to exceptions.
func scanFile(root, path string) ([]finding, error) {
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		return nil, err
	}
	if strings.HasSuffix(path, ".go") {
		return scanGo(path, text), nil
	}
	return scanPage(path, string(text)), nil
}

// scanGo searches identifiers, comments and literals. It needs no valid Go.
func scanGo(path string, text []byte) (found []finding) {
	fset := token.NewFileSet()
	file := fset.AddFile(path, -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, func(token.Position, string) {}, scanner.ScanComments)
	for {
		pos, tok, lit := s.Scan()
		line := fset.Position(pos).Line
		switch tok {
		case token.EOF:
			return found
		case token.IDENT:
			found = append(found, search(path, line, splitIdentifier(lit))...)
		case token.COMMENT, token.STRING:
			for i, l := range strings.Split(lit, "\n") {
				found = append(found, search(path, line+i, l)...)
			}
		}
	}
}

var codeSpan = regexp.MustCompile("`[^`]*`")

// scanPage searches the text of a page outside of code.
func scanPage(path, text string) (found []finding) {
	isCode := false
	for i, l := range strings.Split(text, "\n") {
		switch {
		case strings.HasPrefix(l, "```"):
			isCode = !isCode
		case !isCode && !strings.HasPrefix(l, "    "):
			found = append(found, search(path, i+1, codeSpan.ReplaceAllString(l, ""))...)
		}
	}
	return found
}

func search(path string, line int, text string) (found []finding) {
	for _, t := range terms {
		for _, m := range t.re.FindAllString(text, -1) {
			found = append(found, finding{path, line, m, t})
		}
	}
	return found
}

// splitIdentifier returns the words of an identifier: "isBTLStranger" gives "is BTL Stranger".
func splitIdentifier(name string) string {
	var b strings.Builder
	runes := []rune(name)
	for i, r := range runes {
		switch {
		case r == '_':
			r = ' '
		case i > 0 && unicode.IsUpper(r) && (unicode.IsLower(runes[i-1]) || unicode.IsDigit(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])):
			b.WriteByte(' ')
		}
		b.WriteRune(r)
	}
	return b.String()
}
