package launch

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
)

func TestHang_RanksWaitInCycles_EachIsReportedOnce(t *testing.T) {
	for _, c := range []struct {
		// Awaited ranks, by rank, or null for any.
		on   string
		want []string
	}{
		{"[[1],[0]]", []string{"a cycle: rank 0 waits for rank 1, which waits for rank 0"}},
		{"[[2],[2],[3],[1]]", []string{"a cycle: rank 1 waits for rank 2, which waits for rank 3, which waits for rank 1"}},
		{"[[1],[2],null]", nil},
		{"[[0],[9]]", []string{"rank 0 waits for itself"}},
		{"[[1],[0],[3],[2]]", []string{"a cycle: rank 0 waits for rank 1, which waits for rank 0", "a cycle: rank 2 waits for rank 3, which waits for rank 2"}},
	} {
		var on [][]int
		if err := json.Unmarshal([]byte(c.on), &on); err != nil {
			t.Fatal(err)
		}
		h := hang{reportByRank: map[int]blockedCalls{}}
		for rank, list := range on {
			var w blockedCalls
			body, err := json.Marshal(map[string]any{"waits": []any{map[string]any{"what": "x", "on": list}}})
			if err == nil {
				err = json.Unmarshal(body, &w)
			}
			if err != nil {
				t.Fatal(err)
			}
			h.reportByRank[rank] = w
		}
		if got := h.cycles(); !slices.Equal(got, c.want) {
			t.Errorf("%s: %s", c.on, fmt.Sprintf("%q, want %q", got, c.want))
		}
	}
}
