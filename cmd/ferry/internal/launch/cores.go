package launch

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// cores returns the processors that this process may run on, in the order in
// which ranks should get them: first one hardware thread of each core, then the
// second ones, and so on.
func cores() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("bind to cores: %w", err)
	}
	var out []int
	threads := map[string]int{} // of a core that were met so far
	round := map[int]int{}      // of a processor: how many threads of its core come before
	for cpu := range len(set) * 64 {
		if set.IsSet(cpu) {
			core := siblings(cpu)
			out, round[cpu] = append(out, cpu), threads[core]
			threads[core]++
		}
	}
	slices.SortStableFunc(out, func(a, b int) int { return cmp.Compare(round[a], round[b]) })
	if len(out) == 0 {
		return nil, fmt.Errorf("bind to cores: the affinity mask is empty")
	}
	return out, nil
}

// siblings names the core of a processor: the list of its hardware threads. A
// machine that doesn't say has one per core.
func siblings(cpu int) string {
	b, err := os.ReadFile(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu))
	if err != nil {
		return fmt.Sprint(cpu)
	}
	return strings.TrimSpace(string(b))
}
