package ucx

import (
	"path"
	"slices"

	"github.com/ferrympi/ferry/internal/ucp"
)

// A class is a group of transports, as in mtl.ucx.provider_include.
type class struct {
	name string
	// transports are UCX's names, as patterns (path.Match).
	transports []string
	// tls is the value of UCX_TLS.
	tls         string
	isNodeLocal bool
	// needsHardware is set if the class needs a network device.
	needsHardware bool
	// needsRequest is set if only provider_include selects the class.
	needsRequest bool
	// packet is the length of the longest message in one packet, in bytes. Packets have 8 KiB with headers. Those of ud have the
	// length of the network's, which may be 1 KiB.
	packet int
}

// classes is in order of preference. Transports of shared memory are last, because pml.cm.shared_memory uses ferry's own.
var classes = []class{
	{name: "rc", transports: []string{"rc", "rc_*"}, tls: "rc,self", needsHardware: true, packet: 8000},
	{name: "dc", transports: []string{"dc", "dc_*"}, tls: "dc,self", needsHardware: true, packet: 8000},
	{name: "ud", transports: []string{"ud", "ud_*"}, tls: "ud,self", needsHardware: true, packet: 900},
	{name: "tcp", transports: []string{"tcp"}, tls: "tcp,self", packet: 8000},
	{name: "shm", transports: []string{"posix", "sysv", "xpmem"}, tls: "shm,self", isNodeLocal: true, packet: 8000},
	{name: "cuda", transports: []string{"cuda_*", "gdr_copy"}, tls: "cuda,shm,self", isNodeLocal: true, needsRequest: true, packet: 8000},
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
		if slices.ContainsFunc(c.transports, func(p string) bool {
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
