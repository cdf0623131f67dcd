package text

import (
	"strconv"
	"strings"
	"unicode"
)

// Printable returns text of another process for a terminal. Control characters are escaped, except those in keep.
func Printable(text, keep string) string {
	var b strings.Builder
	for _, r := range text {
		if unicode.IsControl(r) && !strings.ContainsRune(keep, r) {
			quoted := strconv.QuoteRune(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}
