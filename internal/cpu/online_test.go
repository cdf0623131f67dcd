package cpu

import "testing"

func TestProcessorListsAreCounted(t *testing.T) {
	for list, want := range map[string]int{"0": 1, "0-3,7": 5, "0-1,4-5": 4, "": 0, "x-3,2": 1, "3-1": 0} {
		if got := countList(list); got != want {
			t.Errorf("%q: %d, want %d", list, got, want)
		}
	}
	if online() < 1 || Available() < 1 {
		t.Error("no processor")
	}
}
