package main

import "testing"

func TestParseTotal_CallgrindOutput_ReturnsTotal(t *testing.T) {
	out := "==12== Callgrind, a call-graph generating cache profiler\n==12== \n==12== Events    : Ir\n==12== Collected : 123456789\n==12== \n==12== I   refs:      123,456,789\n"
	if n, err := parseTotal([]byte(out)); err != nil || n != 123456789 {
		t.Errorf("%d, error %v", n, err)
	}
	for _, bad := range []string{"", "Collected : 5", out + out, "==1== Collected : 99999999999999999999\n"} {
		if n, err := parseTotal([]byte(bad)); err == nil {
			t.Errorf("%q: %d", bad, n)
		}
	}
}

func TestRunPingPongs_EveryPMLAndPolicy_Completes(t *testing.T) {
	for _, name := range []string{"ob1", "cm"} {
		for _, policy := range []string{"agree", "gather", "lazy"} {
			if err := runPingPongs(t.Context(), name, policy, 10); err != nil {
				t.Errorf("%s, %s: %v", name, policy, err)
			}
		}
	}
	if err := runPingPongs(t.Context(), "ob1", "no such policy", 1); err == nil {
		t.Error("unknown policy: no error")
	}
	if err := runPingPongs(t.Context(), "no such pml", "agree", 1); err == nil {
		t.Error("unknown PML: no error")
	}
}
