// Package hostid tells whether processes see the same things of one host: it has no
// policy about what follows from that.
package hostid

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Proof returns a text that is equal in two processes if they run on the same boot of the
// same kernel, and each of paths is the same file to both; otherwise it differs. A
// directory of shared memory is such a path, and so is a name space (/proc/self/ns/net).
// A host's name proves none of this.
func Proof(paths ...string) (string, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	proof := strings.TrimSpace(string(boot))
	for _, path := range paths {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			return "", fmt.Errorf("%s: %w", path, err)
		}
		proof += fmt.Sprintf(" %d:%d", st.Dev, st.Ino)
	}
	return proof, nil
}
