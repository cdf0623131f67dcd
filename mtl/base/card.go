package base

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/mtl/trial"
)

// Card is the module's part of the business card. It is constant once the module is open.
type Card struct {
	Offer string
	Blob  []byte
	// NodeProof identifies the node if the module reaches no other node; otherwise it is empty.
	NodeProof string
	medium    trial.Medium
}

// ProveNode restricts the module to its node, whose processes a medium connects.
func (c *Card) ProveNode(medium trial.Medium) (err error) {
	c.medium = medium
	c.NodeProof, err = medium.Proof()
	return err
}

// NodeDifference returns the reason why a module that reaches no other node cannot reach a peer with another proof, or "".
func (c *Card) NodeDifference(peerProof string) string {
	if c.NodeProof == "" || c.NodeProof == peerProof {
		return ""
	}
	return c.medium.Difference(c.NodeProof, peerProof)
}

// ErrCardEntry is the error of an entry that is not decoded.
var ErrCardEntry = errors.New("its entry in the business card makes no sense")

// CheckCardVersion validates the first byte of a peer's entry.
func CheckCardVersion(entry []byte, version byte) error {
	if len(entry) == 0 {
		return errors.New("its business card has no entry for it")
	}
	if entry[0] != version {
		return fmt.Errorf("it speaks version %d, and this process version %d", entry[0], version)
	}
	return nil
}

// SplitCardEntry splits fields with a zero byte between them. The last one may contain zeros, and neither that nor the first one is
// empty.
func SplitCardEntry(in []byte, n int) ([][]byte, error) {
	fields := bytes.SplitN(in, []byte{0}, n)
	if len(fields) < n || len(fields[0]) == 0 || len(fields[n-1]) == 0 {
		return nil, ErrCardEntry
	}
	return fields, nil
}
