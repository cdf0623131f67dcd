package wire

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// ParseRanks parses a list of ranks such as "0-3,7", and keeps the order. It returns an error for
// an empty item, a descending range, a rank that is listed twice, and a rank of MaxElements or
// more.
func ParseRanks(s string) ([]uint32, error) {
	var out []uint32
	seen := map[uint32]bool{}
	for item := range strings.SplitSeq(s, ",") {
		item = strings.TrimSpace(item)
		if item == "" {
			return nil, fmt.Errorf("rank list %q has an empty item: want ranks and ranges such as 0-3,7", s)
		}
		a, b, isRange := strings.Cut(item, "-")
		if !isRange {
			b = a
		}
		first, err := parseRank(a)
		last, err2 := parseRank(b)
		if err = cmp.Or(err, err2); err != nil {
			return nil, fmt.Errorf("rank list %q: %w", s, err)
		}
		if last < first {
			return nil, fmt.Errorf("rank list %q: range %s is descending", s, item)
		}
		for r := first; r <= last; r++ {
			if seen[r] {
				return nil, fmt.Errorf("rank list %q: rank %d is listed twice", s, r)
			}
			seen[r] = true
			out = append(out, r)
		}
	}
	return out, nil
}

func parseRank(s string) (uint32, error) {
	n, err := strconv.ParseUint(strings.TrimSpace(s), 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%q is not a rank", s)
	}
	if n >= MaxElements {
		return 0, fmt.Errorf("rank %d is over the limit of %d", n, MaxElements-1)
	}
	return uint32(n), nil
}
