package framework

import (
	"cmp"
	"slices"
	"strings"
)

// Nearest returns the candidate with the smallest edit distance from name, regardless of case. Among equals it prefers the longest common prefix,
// then the first. It returns "" without candidates. Errors about unknown names suggest it.
func Nearest(name string, candidates []string) string {
	if len(candidates) == 0 {
		return ""
	}
	name = strings.ToLower(name)
	return slices.MinFunc(candidates, func(a, b string) int {
		a, b = strings.ToLower(a), strings.ToLower(b)
		return cmp.Or(
			cmp.Compare(editDistance(name, a), editDistance(name, b)),
			cmp.Compare(commonPrefix(name, b), commonPrefix(name, a)),
		)
	})
}

// Near reports whether name is likely to be a misspelling of known. At most about a third of it may differ.
func Near(name, known string) bool { return editDistance(name, known) <= max(1, (len(name)+1)/3) }

func commonPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// editDistance returns the Levenshtein distance in bytes. Names are ASCII.
func editDistance(a, b string) int {
	// Names from outside may be long. All known names are shorter than this limit, above which the difference in length dominates.
	const longest = 256
	if len(a) > longest {
		a = a[:longest]
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			substitute := diagonal
			if a[i] != b[j] {
				substitute++
			}
			diagonal = row[j+1]
			row[j+1] = min(substitute, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
