package cpu

import "testing"

func TestCountList_Ranges_AreCounted(t *testing.T) {
	for list, want := range map[string]int{"0": 1, "0-3,7": 5, "0-1,4-5": 4, "": 0, "x-3,2": 1, "3-1": 0} {
		if got := countList(list); got != want {
			t.Errorf("%q: %d, want %d", list, got, want)
		}
	}
	if online() < 1 || Available() < 1 {
		t.Error("no processor")
	}
}

func TestForRanks_BoundByItsLauncher_CountsTheLaunchersProcessors(t *testing.T) {
	for _, c := range []struct{ own, parents, want int }{
		{2, 8, 8},  // --cores-per-rank 2
		{1, 8, 8},  // --bind-to core
		{2, 2, 2},  // A container with two processors.
		{1, 1, 16}, // Bound with its parent, a shell.
		{4, 1, 4},  // The parent is not visible.
		{16, 16, 16},
	} {
		if got := forRanks(c.own, c.parents, func() int { return 16 }); got != c.want {
			t.Errorf("%d processors, %d of the parent: %d, want %d", c.own, c.parents, got, c.want)
		}
	}
}
