package main

import (
	"bufio"
	_ "embed"
	"fmt"
	"regexp"
	"strings"
)

// A term is a word that docs/terms.md replaces.
type term struct {
	// Key in exceptions.txt.
	name string
	// Regular expression of whole words, in lower case.
	pattern string
	write   string // The replacement.
	re      *regexp.Regexp
}

// terms have words without a legitimate use, in identifiers, comments, literals and pages.
var terms = compile([]term{
	{name: "afresh", pattern: "afresh", write: "reconnect, new epoch, again"},
	{name: "chooser", pattern: "choosers?", write: "selector"},
	{name: "contest", pattern: "contests?", write: "probe"},
	{name: "crowded", pattern: "crowded|uncrowded", write: "oversubscribed"},
	{name: "departed", pattern: "departed", write: "left, failed"},
	{name: "errand", pattern: "errands?", write: "offloaded call"},
	{name: "flatter", pattern: "flatter(s|ed|ing)?", write: "estimate, penalty"},
	{name: "forgive", pattern: "forgives?|forgave|forgiven", write: "decay of a penalty"},
	{name: "learnt", pattern: "learnt", write: "measured, selected, received"},
	{name: "nobody", pattern: "nobody", write: "a noun, such as no receiver"},
	{name: "resting", pattern: "resting", write: "quarantined"},
	{name: "somebody", pattern: "somebody|someone", write: "a noun, such as another process"},
	{name: "stash", pattern: "stash(es|ed)?", write: "early-arrival queue"},
	{name: "stranger", pattern: "strangers?", write: "unknown peer"},
	{name: "whoever", pattern: "whoever|whomever", write: "a noun, such as the sender"},
	{name: "whom", pattern: "whom", write: "a noun, such as the receiver"},
})

func compile(list []term) []term {
	for i := range list {
		list[i].re = regexp.MustCompile(`(?i)\b(?:` + list[i].pattern + `)\b`)
	}
	return list
}

// An exception allows a term below a path.
type exception struct {
	// Name of the term, or * for all.
	term string
	// Path relative to the root; a folder stands for everything below it.
	path   string
	reason string
	used   bool
}

//go:embed exceptions.txt
var exceptionText string

// parseExceptions reads lines of a term, a path and a reason. Empty lines and lines that begin with # are comments.
func parseExceptions(text string) (list []exception, err error) {
	known := map[string]bool{"*": true}
	for _, t := range terms {
		known[t.name] = true
	}
	s := bufio.NewScanner(strings.NewReader(text))
	for n := 1; s.Scan(); n++ {
		line := strings.TrimSpace(s.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, rest, _ := strings.Cut(line, " ")
		path, reason, _ := strings.Cut(rest, " ")
		if !known[name] || path == "" || reason == "" {
			return nil, fmt.Errorf("exceptions.txt:%d: %q: write a term, a path and a reason", n, line)
		}
		list = append(list, exception{term: name, path: path, reason: reason})
	}
	return list, s.Err()
}

// allowed reports whether an exception covers a term in a file, and marks that exception as used.
func allowed(exceptions []exception, name, path string) bool {
	for i := range exceptions {
		e := &exceptions[i]
		if (e.term == "*" || e.term == name) && (path == e.path || strings.HasPrefix(path, e.path+"/")) {
			e.used = true
			return true
		}
	}
	return false
}

// pruned returns the text of exceptions without the lines of unused ones.
func pruned(text string, exceptions []exception) string {
	unused := map[string]bool{}
	for _, e := range exceptions {
		unused[e.term+" "+e.path+" "+e.reason] = !e.used
	}
	var b strings.Builder
	for _, line := range strings.SplitAfter(text, "\n") {
		if !unused[strings.TrimSpace(line)] {
			b.WriteString(line)
		}
	}
	return b.String()
}
