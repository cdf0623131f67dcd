package cpu

import (
	"testing"

	"golang.org/x/sys/unix"
)

// Processors 0 to 3 and 8 share a cache, and so do 4 to 7. That of the others is unknown.
func TestCacheDomain_Masks_AreCompared(t *testing.T) {
	sharers := func(cpu int) string {
		switch {
		case cpu < 4 || cpu == 8:
			return "0-3,8\n"
		case cpu < 8:
			return "4-7\n"
		case cpu == 9:
			return "x,12-10,-5\n"
		}
		return ""
	}
	for _, c := range []struct {
		mask   []int
		lowest int
		ok     bool
	}{
		{[]int{0}, 0, true},
		{[]int{1, 2, 8}, 0, true},
		{[]int{5, 7}, 4, true},
		{[]int{3, 4}, 0, false},
		{[]int{9}, 0, false},
		{[]int{10, 11}, 0, false},
		{nil, 0, false},
	} {
		var set unix.CPUSet
		for _, n := range c.mask {
			set.Set(n)
		}
		if lowest, ok := cacheDomain(set, sharers); ok != c.ok || ok && lowest != c.lowest {
			t.Errorf("processors %v: cache of %d, %t; want %d, %t", c.mask, lowest, ok, c.lowest, c.ok)
		}
	}
	if _, ok := CacheDomain(1 << 30); ok {
		t.Error("the cache of a process that does not exist")
	}
}
