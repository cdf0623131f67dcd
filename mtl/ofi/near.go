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
	dirs, _ := filepath.Glob(filepath.Join(sys, "devices/system/node/node[0-9]*"))
	for _, dir := range dirs {
		node, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(dir), "node"))
		if err != nil {
			continue
		}
		cpus, _ := filepath.Glob(filepath.Join(dir, "cpu[0-9]*"))
		for _, c := range cpus {
			if n, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(c), "cpu")); err == nil && set.IsSet(n) {
				t.nodes = append(t.nodes, node)
				break
			}
		}
	}
	slices.Sort(t.nodes)
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
		row, err := os.ReadFile(filepath.Join(t.sys, "devices/system/node", fmt.Sprintf("node%d", node), "distance"))
		if err != nil {
			break
		}
		best := 0
		for _, own := range t.nodes {
			if fields := strings.Fields(string(row)); own < len(fields) {
				if d, err := strconv.Atoi(fields[own]); err == nil && (best == 0 || d < best) {
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
