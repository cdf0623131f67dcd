package framework

import "testing"

func TestNearest_OtherCase_IsNoDifference(t *testing.T) {
	for name, want := range map[string]string{"TCP": "tcp", "Shm": "shm", "tpc": "tcp", "UCX": "UCX"} {
		if got := Nearest(name, []string{"shm", "self", "tcp", "UCX"}); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
