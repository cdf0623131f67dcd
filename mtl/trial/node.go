package trial

import (
	"strings"

	"github.com/ferrympi/ferry/internal/hostid"
)

// Medium is the mechanism that connects processes of a transport without a network.
type Medium uint8

// The media.
const (
	// Memory is shared memory. Processes also read one another's memory, which the kernel permits within a user namespace.
	Memory Medium = iota
	// Loopback is the loopback interface of a network namespace.
	Loopback
)

// mediumPart is a file that two processes share if the medium connects them.
type mediumPart struct{ path, difference string }

var mediumParts = [...][]mediumPart{
	Memory: {
		{"/dev/shm", "has another /dev/shm"},
		{"/proc/self/ns/pid", "is in another pid namespace"},
		{"/proc/self/ns/user", "is in another user namespace"},
	},
	Loopback: {{"/proc/self/ns/net", "is in another network namespace"}},
}

// Proof returns a text that is equal in processes that the medium connects.
func (m Medium) Proof() (string, error) {
	var paths []string
	for _, p := range mediumParts[m] {
		paths = append(paths, p.path)
	}
	return hostid.Proof(paths...)
}

// Difference describes a peer with another proof. An empty proof is that of a process whose
// transport has a network.
func (m Medium) Difference(own, peer string) string {
	if peer == "" {
		return "uses a network"
	}
	a, b := strings.Fields(own), strings.Fields(peer)
	if len(a) == len(b) && len(a) == 1+len(mediumParts[m]) && a[0] == b[0] {
		for i, p := range mediumParts[m] {
			if a[1+i] != b[1+i] {
				return p.difference
			}
		}
	}
	return "is on another node"
}
