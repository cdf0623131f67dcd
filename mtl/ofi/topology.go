package ofi

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/internal/netaddr"
	"github.com/ferrympi/ferry/mtl/base"
)

// defaultDistance is the system's distance of a NUMA node to itself. It is used for unknown distances.
const defaultDistance = 10

// topology describes the network devices of this machine, and their distances from this process.
type topology struct {
	// "/sys" except in tests.
	sysfsDir string
	// numaNodes have a processor that this process may use.
	numaNodes []int

	interfaces []netaddr.Interface
}

func newTopology(sys string) topology {
	t := topology{sysfsDir: sys}
	t.interfaces, _ = netaddr.HostWithRoutes() // Without them the order of libfabric decides.
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return t
	}
	found, _ := filepath.Glob(filepath.Join(sys, "devices/system/node/node[0-9]*/cpu[0-9]*"))
	for _, dir := range found {
		var node, cpu int
		n, _ := fmt.Sscanf(strings.TrimPrefix(dir, sys), "/devices/system/node/node%d/cpu%d", &node, &cpu)
		if n == 2 && set.IsSet(cpu) && !slices.Contains(t.numaNodes, node) {
			t.numaNodes = append(t.numaNodes, node)
		}
	}
	return t
}

// device returns the sysfs folder of the hardware that a provider uses for a domain, or "" if there is none. Devices in
// software, such as RDMA over a plain Ethernet interface, have no such folder. The provider's attributes don't
// decide this: some lack the PCI address of their device, others have that of a plain network interface.
func (t topology) device(p Provider, domain string) string {
	if p.Devices == "" {
		return ""
	}
	if _, err := os.Stat(filepath.Join(t.sysfsDir, "class/net", domain)); err == nil && p.WorksOnSockets {
		return ""
	}
	_, hardware := base.FindDevice(t.sysfsDir, p.Devices, func(name string) bool {
		// A pattern for names does not depend on the domain. A test checks the patterns.
		return !strings.HasSuffix(p.Devices, "/") || name == domain || strings.HasPrefix(domain, name) && !isWordByte(domain[len(name)])
	})
	return hardware
}

// network returns the name of a network device of this machine, or "" if there is none.
func (t topology) network() string {
	for _, p := range known {
		if p.Devices == "" {
			continue
		}
		if name, _ := base.FindDevice(t.sysfsDir, p.Devices, func(string) bool { return true }); name != "" {
			return name
		}
	}
	return ""
}

func isWordByte(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// distance returns the shortest NUMA distance between an interface and a node of this process, with a note for users. device is
// the folder of its hardware, pci its PCI address, and name the possible name of a network interface. Each may be
// empty.
func (t topology) distance(device, pci, name string) (int, string) {
	for _, dir := range []string{
		device,
		filepath.Join(t.sysfsDir, "bus/pci/devices", pci),
		filepath.Join(t.sysfsDir, "class/net", name, "device"),
	} {
		text, err := os.ReadFile(filepath.Join(dir, "numa_node"))
		if err != nil {
			continue
		}
		node, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil || node < 0 {
			break // The machine has one node, or does not report it.
		}
		text, _ = os.ReadFile(filepath.Join(t.sysfsDir, "devices/system/node", fmt.Sprintf("node%d", node), "distance"))
		row, best := strings.Fields(string(text)), 0
		for _, own := range t.numaNodes {
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
	return defaultDistance, ""
}
