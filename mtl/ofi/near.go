package ofi

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// usualDistance is what the system calls the distance of a NUMA node to itself;
// it is taken for whatever is not known.
const usualDistance = 10

// topology knows how far network interfaces are from this process.
type topology struct {
	sys   string // "/sys"; another root in tests
	nodes []int  // NUMA nodes on whose processors this process may run
}

func newTopology(sys string) topology {
	t := topology{sys: sys}
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return t
	}
	paths, _ := filepath.Glob(filepath.Join(sys, "devices/system/node/node[0-9]*/cpu[0-9]*"))
	for _, path := range paths {
		var node, cpu int
		n, _ := fmt.Sscanf(strings.TrimPrefix(path, sys), "/devices/system/node/node%d/cpu%d", &node, &cpu)
		if n == 2 && set.IsSet(cpu) && !slices.Contains(t.nodes, node) {
			t.nodes = append(t.nodes, node)
		}
	}
	return t
}

// distance returns how far an interface is: the shortest of the system's
// distances between its node and one of the process's. pci is its address, or
// empty, and name what the system may call it.
func (t topology) distance(pci, name string) (int, string) {
	for _, dir := range []string{
		filepath.Join(t.sys, "bus/pci/devices", pci),
		filepath.Join(t.sys, "class/net", name, "device"),
		filepath.Join(t.sys, "class/infiniband", name, "device"),
	} {
		text, err := os.ReadFile(filepath.Join(dir, "numa_node"))
		if err != nil {
			continue
		}
		node, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil || node < 0 {
			break // the machine has one node, or does not say
		}
		text, _ = os.ReadFile(filepath.Join(t.sys, "devices/system/node", fmt.Sprintf("node%d", node), "distance"))
		row, best := strings.Fields(string(text)), 0
		for _, own := range t.nodes {
			if own < len(row) {
				if d, err := strconv.Atoi(row[own]); err == nil && (best == 0 || d < best) {
					best = d
				}
			}
		}
		if best > 0 {
			return best, fmt.Sprintf("on NUMA node %d, distance %d", node, best)
		}
	}
	return usualDistance, ""
}
