package cpu

import "testing"

func TestParseCacheSize_InvalidText_ReturnsZero(t *testing.T) {
	for s, want := range map[string]int{"1024K\n": 1 << 20, "512K": 512 << 10, "": 0, "K": 0, "-4K": 0, "2M": 0, "99999999999999999999K": 0, "0K": 0} {
		if got := parseCacheSize(s); got != want {
			t.Errorf("%q: %d, not %d", s, got, want)
		}
	}
	if n := CoreCache(); n < 0 {
		t.Errorf("this machine: %d", n)
	}
}
