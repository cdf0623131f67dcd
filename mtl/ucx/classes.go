package ucx

import (
	"path"
	"slices"

	"github.com/ferrympi/ferry/internal/ucp"
)

// A class is a kind of transports: what mtl.ucx.provider_include names.
type class struct {
	name       string
	transports []string // UCX's names, as patterns (path.Match)
	tls        string   // what UCX_TLS says for it
	local      bool     // it never leaves the node
	hardware   bool     // it needs a device of a network
	named      bool     // it is used only where provider_include names it
	// packet is the length, in bytes, up to which a message is in one packet. Packets have 8 KiB
	// with headers; those of ud are as long as the network's, which may be 1 KiB.
	packet int
}

// classes has the best first: it is the order in which classes are tried. None of shared
// memory is on it: ferry's own is nearer, and pml.cm.shared_memory uses that.
var classes = []class{
	{name: "rc", transports: []string{"rc", "rc_*"}, tls: "rc,self", hardware: true, packet: 8000},
	{name: "dc", transports: []string{"dc", "dc_*"}, tls: "dc,self", hardware: true, packet: 8000},
	{name: "ud", transports: []string{"ud", "ud_*"}, tls: "ud,self", hardware: true, packet: 900},
	{name: "tcp", transports: []string{"tcp"}, tls: "tcp,self", packet: 8000},
	{name: "shm", transports: []string{"posix", "sysv", "xpmem"}, tls: "shm,self", local: true, packet: 8000},
	{name: "cuda", transports: []string{"cuda_*", "gdr_copy"}, tls: "cuda,shm,self", local: true, named: true, packet: 8000},
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

// of returns those of the resources that are the class's own.
func (c class) of(all []ucp.Resource) (own []ucp.Resource) {
	for _, r := range all {
		if slices.ContainsFunc(c.transports, func(p string) bool {
			ok, _ := path.Match(p, r.Transport) // the test of the table tries each
			return ok
		}) {
			own = append(own, r)
		}
	}
	return own
}

// loopback is the device that reaches this host alone.
const loopback = "lo"

// staysHere reports whether nothing of this leaves the node.
func staysHere(own []ucp.Resource) bool {
	return !slices.ContainsFunc(own, func(r ucp.Resource) bool {
		return r.Device != loopback && !isMemory(r.Device)
	})
}
