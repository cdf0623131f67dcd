// Command lint refuses words that docs/terms.md replaces, in identifiers, comments, literals and pages,
// and subjects of commits above 72 characters. exceptions.txt lists the places that may keep a word,
// each with its reason. scripts/lint runs it.
//
//	go run ./internal/lint          prints each use, and exits with 1 if there is one
//	go run ./internal/lint -prune   removes the exceptions without a use from exceptions.txt
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	prune := flag.Bool("prune", false, "remove the exceptions without a use from exceptions.txt")
	flag.Parse()
	if err := run(".", *prune, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "lint:", err)
		os.Exit(1)
	}
}

func run(root string, prune bool, out io.Writer) error {
	exceptions, err := parseExceptions(exceptionText)
	if err != nil {
		return err
	}
	found, err := scanTree(root, exceptions)
	if err != nil {
		return err
	}
	if prune {
		return os.WriteFile(filepath.Join(root, "internal/lint/exceptions.txt"), []byte(pruned(exceptionText, exceptions)), 0o644)
	}
	for _, f := range found {
		fmt.Fprintln(out, f)
	}
	subjects := longSubjects(root)
	for _, l := range subjects {
		fmt.Fprintln(out, l)
	}
	if n := len(found) + len(subjects); n > 0 {
		return fmt.Errorf("%d findings; internal/lint/exceptions.txt may allow a word, with a reason", n)
	}
	return nil
}

// scanTree scans the files of the repository below root, untracked ones included, without testdata.
func scanTree(root string, exceptions []exception) (found []finding, err error) {
	cmd := exec.Command("git", "ls-files", "-co", "--exclude-standard", "--", "*.go", "*.md")
	cmd.Dir = root
	list, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	for _, path := range strings.Fields(string(list)) {
		if strings.Contains("/"+path, "/testdata/") {
			continue
		}
		all, err := scanFile(root, filepath.ToSlash(path))
		if os.IsNotExist(err) { // Removed, and still in the index.
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, f := range all {
			if !allowed(exceptions, f.term.name, f.path) {
				found = append(found, f)
			}
		}
	}
	return found, nil
}
