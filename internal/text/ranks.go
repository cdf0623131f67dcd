package text

import (
	"fmt"
	"strings"
)

// Ranks names ranks: "rank 1", or "ranks 0, 2 and 5 others".
func Ranks(ranks []int) string {
	if len(ranks) == 1 {
		return fmt.Sprintf("rank %d", ranks[0])
	}
	const most = 8 // Listed ranks.
	var b strings.Builder
	for i, r := range ranks[:min(len(ranks), most)] {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprint(&b, r)
	}
	if more := len(ranks) - most; more > 0 {
		fmt.Fprintf(&b, " and %d others", more)
	}
	return "ranks " + b.String()
}
