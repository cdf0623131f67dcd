package launchers

import (
	"strings"
	"testing"
)

// The test sets the parameter explain. Without reports of the launcher rank 0 prints its routes,
// and ferry run prints those of all ranks.
func TestExplain_AnyLauncher_PrintsPairsOnce(t *testing.T) {
	eachConnected(t, func(t *testing.T, l *Started) {
		res := l.RunToEnd(t, Job{Size: 2, Program: "two", ExtraEnv: []string{"FERRY_EXPLAIN=1"}})
		all := res.LauncherOutput
		for _, rank := range res.Ranks {
			all += rank.Output
		}
		pair := "\n0 x 1 "
		if l.Interface == Local {
			pair = "\n0-1 x 0-1 "
		}
		if strings.Count(all, "PAIRS  ") != 1 || strings.Count(all, pair) != 1 {
			t.Errorf("want the table of pairs with %q once:\n%s", pair, all)
		}
		if strings.Contains(res.Ranks[1].Output, "PAIRS") {
			t.Errorf("rank 1 prints %s", res.Ranks[1].Output)
		}
	})
}
