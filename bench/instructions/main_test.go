package main

import "testing"

func TestSumOfCallgrindIsFound(t *testing.T) {
	out := "==12== Callgrind, a call-graph generating cache profiler\n==12== \n==12== Events    : Ir\n==12== Collected : 123456789\n==12== \n==12== I   refs:      123,456,789\n"
	if n, err := parse([]byte(out)); err != nil || n != 123456789 {
		t.Errorf("%d, error %v", n, err)
	}
	for _, bad := range []string{"", "Collected : 5", out + out, "==1== Collected : 99999999999999999999\n"} {
		if n, err := parse([]byte(bad)); err == nil {
			t.Errorf("%q: %d", bad, n)
		}
	}
}

// What is counted must work for each PML and policy, and end.
func TestPingPongsOfEachPolicy(t *testing.T) {
	for _, over := range []string{"ob1", "cm"} {
		for _, policy := range []string{"agree", "gather", "lazy"} {
			if err := play(t.Context(), over, policy, 10); err != nil {
				t.Errorf("%s, %s: %v", over, policy, err)
			}
		}
	}
	if err := play(t.Context(), "ob1", "no such policy", 1); err == nil {
		t.Error("an unknown policy was played")
	}
	if err := play(t.Context(), "no such pml", "agree", 1); err == nil {
		t.Error("an unknown PML was played")
	}
}
