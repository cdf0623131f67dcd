package assembly

import (
	"crypto/sha256"
	"fmt"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/sameness"
)

// nodeID returns what is equal in processes that share memory, and in no others: the
// kernel's boot, and the directory in which segments are made. Containers on one host are
// one node if they share that directory. A host's name proves none of this, and what a
// launcher counts as a node may be several containers. Empty: there is no such directory.
func nodeID(values *framework.Values) string {
	dir, ok := values.Get("btl.shm.dir")
	if !ok {
		dir.Text = "/dev/shm"
	}
	proof, err := sameness.Proof(dir.Text)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%x", sha256.Sum256([]byte(proof)))
}
