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
	// Medium connects the processes of a module with a NodeProof.
	Medium trial.Medium
}

// ErrCardEntry is the error of an entry that is not decoded.
var ErrCardEntry = errors.New("its entry in the business card makes no sense")

// SplitCardEntry returns the n fields of a peer's untrusted entry, with a zero byte between them. They begin at head, behind the version and other
// bytes of fixed length. The last field may contain zeros, and neither that nor the first one is empty.
func SplitCardEntry(in []byte, version byte, head, n int) ([][]byte, error) {
	if len(in) == 0 {
		return nil, errors.New("its business card has no entry for it")
	}
	if in[0] != version {
		return nil, fmt.Errorf("it speaks version %d, and this process version %d", in[0], version)
	}
	fields := bytes.SplitN(in[min(head, len(in)):], []byte{0}, n)
	if len(fields) < n || len(fields[0]) == 0 || len(fields[n-1]) == 0 {
		return nil, ErrCardEntry
	}
	return fields, nil
}
