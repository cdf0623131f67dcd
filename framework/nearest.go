package framework

import (
	"cmp"
	"slices"
	"strings"
)

// Nearest returns the candidate with the smallest edit distance from name, regardless of
// case; of several equals the one that shares the longest prefix with it, then the first.
// It returns "" if there are no candidates. It serves error messages about unknown names.
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

// Near reports whether a name may be meant for another one: about a third of it differs at
// most. An error that names what is farther away helps nobody.
func Near(name, known string) bool { return editDistance(name, known) <= max(1, (len(name)+1)/3) }

func commonPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// editDistance is the Levenshtein distance in bytes; names are ASCII.
func editDistance(a, b string) int {
	// Outside input may be long, and no known name is: beyond this length the
	// distance is dominated by the difference in length anyway.
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
