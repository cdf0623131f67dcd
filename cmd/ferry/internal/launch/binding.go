package launch

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/framework"
)

// bind returns the processors of each rank, as Binding chooses them, or nil. It is ErrConfig
// if there are too few for CoresPerRank.
func (j *Job) bind() ([][]int, error) {
	if !j.BindsOneCore && j.CoresPerRank == 0 {
		return nil, nil
	}
	order, err := cores()
	if err != nil {
		return nil, err
	}
	each := max(1, j.CoresPerRank)
	if err := enoughCores(j.CoresPerRank, j.initialSize, len(order)); err != nil {
		return nil, err
	}
	bindings := make([][]int, j.initialSize)
	for rank := range bindings {
		first := rank * each % len(order)
		bindings[rank] = order[first : first+each : first+each]
	}
	return bindings, nil
}

// distinct counts the first processors of bindings.
func distinct(bindings [][]int) int {
	first := map[int]bool{}
	for _, b := range bindings {
		first[b[0]] = true
	}
	return len(first)
}

// enoughCores returns nil if that many ranks can have each cores of their own out of available ones. 0 of
// each is always possible.
func enoughCores(each, ranks, available int) error {
	if each == 0 || each <= available/ranks {
		return nil
	}
	remedy := fmt.Sprintf("choose at most %d for each", available/ranks)
	if ranks > available {
		remedy = "start fewer ranks, or let them share cores (--bind-to core)"
	}
	return fmt.Errorf("%w: cores per rank: %d ranks with %d each need more than the %d that this process may use: %s", framework.ErrConfig, ranks, each, available, remedy)
}

// cores returns the processors of this process in the order for ranks: first one hardware thread of each core, then
// the second ones, and so on.
func cores() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("bind to cores: %w", err)
	}
	var out []int
	threads := map[string]int{}  // of a core that were met so far
	threadIndex := map[int]int{} // Number of preceding threads of the core, by processor.
	for cpu := range len(set) * 64 {
		if set.IsSet(cpu) {
			core := siblings(cpu)
			out, threadIndex[cpu] = append(out, cpu), threads[core]
			threads[core]++
		}
	}
	slices.SortStableFunc(out, func(a, b int) int { return cmp.Compare(threadIndex[a], threadIndex[b]) })
	if len(out) == 0 {
		return nil, fmt.Errorf("bind to cores: the affinity mask is empty")
	}
	return out, nil
}

// siblings returns the list of hardware threads of a processor's core, which identifies it. Without that
// information, each processor is a core.
func siblings(cpu int) string {
	b, err := os.ReadFile(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu))
	if err != nil {
		return fmt.Sprint(cpu)
	}
	return strings.TrimSpace(string(b))
}
