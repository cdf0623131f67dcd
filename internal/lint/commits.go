package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"unicode/utf8"
)

// mostSubject is the length of the longest subject of a commit, in characters.
const mostSubject = 72

// landed are the names of the last landed state, in order of preference. LINT_BASE precedes them.
var landed = []string{"origin/main", "origin/master"}

// longSubjects returns a line for each commit since the merge base with the landed state whose subject is too long. A clone without that
// history has none.
func longSubjects(root string) (lines []string) {
	git := func(args ...string) (string, error) {
		out, err := exec.Command("git", append([]string{"-C", root}, args...)...).Output()
		return strings.TrimSpace(string(out)), err
	}
	for _, name := range append([]string{os.Getenv("LINT_BASE")}, landed...) {
		if name == "" {
			continue
		}
		base, err := git("merge-base", "HEAD", name)
		if err != nil {
			continue
		}
		log, err := git("log", "--no-merges", "--format=%h %s", base+"..HEAD")
		if err != nil {
			return nil
		}
		for _, l := range strings.Split(log, "\n") {
			hash, subject, _ := strings.Cut(l, " ")
			if n := utf8.RuneCountInString(subject); n > mostSubject {
				lines = append(lines, fmt.Sprintf("commit %s: subject of %d characters: write at most %d, and the reasons in the body", hash, n, mostSubject))
			}
		}
		return lines
	}
	return nil
}
