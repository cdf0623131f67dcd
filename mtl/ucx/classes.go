package ucx

import (
	"path"
	"slices"

	"github.com/ferrympi/ferry/internal/ucp"
)

// A class is a group of transports, as in mtl.ucx.provider_include.
type class struct {
	name string
	// transportPatterns are UCX's names, as patterns (path.Match).
	transportPatterns []string
	ucxTLS            string
	isNodeLocal       bool
	// needsHardware is set if the class needs a network device.
	needsHardware bool
	// needsRequest is set if only provider_include selects the class.
	needsRequest bool
	// packetBytes is the length of the longest message in one packet. Packets have 8 KiB with headers. Those of ud have the length
	// of the network's, which may be 1 KiB.
	packetBytes int
}

// classes is in order of preference. Transports of shared memory are last, because pml.cm.shared_memory uses ferry's own.
var classes = []class{
	{name: "rc", transportPatterns: []string{"rc", "rc_*"}, ucxTLS: "rc,self", needsHardware: true, packetBytes: 8000},
	{name: "dc", transportPatterns: []string{"dc", "dc_*"}, ucxTLS: "dc,self", needsHardware: true, packetBytes: 8000},
	{name: "ud", transportPatterns: []string{"ud", "ud_*"}, ucxTLS: "ud,self", needsHardware: true, packetBytes: 900},
	{name: "tcp", transportPatterns: []string{"tcp"}, ucxTLS: "tcp,self", packetBytes: 8000},
	{name: "shm", transportPatterns: []string{"posix", "sysv", "xpmem"}, ucxTLS: "shm,self", isNodeLocal: true, packetBytes: 8000},
	{name: "cuda", transportPatterns: []string{"cuda_*", "gdr_copy"}, ucxTLS: "cuda,shm,self", isNodeLocal: true, needsRequest: true, packetBytes: 8000},
}

func classNames() (names []string) {
	for _, c := range classes {
		names = append(names, c.name)
	}
	return names
}

func classOf(name string) (class, bool) {
	i := slices.IndexFunc(classes, func(c class) bool { return c.name == name })
	if i < 0 {
		return class{}, false
	}
	return classes[i], true
}

// ownResources returns the resources of the class.
func (c class) ownResources(all []ucp.Resource) (own []ucp.Resource) {
	for _, r := range all {
		if slices.ContainsFunc(c.transportPatterns, func(p string) bool {
			ok, _ := path.Match(p, r.Transport) // A test checks the patterns.
			return ok
		}) {
			own = append(own, r)
		}
	}
	return own
}

// loopback is the device that reaches only this host.
const loopback = "lo"

// isNodeLocal reports whether the resources reach only this node.
func isNodeLocal(own []ucp.Resource) bool {
	return !slices.ContainsFunc(own, func(r ucp.Resource) bool {
		return r.Device != loopback && !isMemory(r.Device)
	})
}
