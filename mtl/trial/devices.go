package trial

import (
	"slices"
	"strings"
)

// libfabrics begin the names of devices that providers of libfabric are made for: Slingshot
// (cxi), Omni-Path (hfi1, qib), EFA (efa, rdmap) and usNIC. The system shows some of them beside those
// of InfiniBand and RoCE, which UCX is made for.
var libfabrics = []string{"cxi", "hfi1", "qib", "efa", "rdmap", "usnic"}

// OfLibfabric reports whether a device, as /sys/class calls it, is one that libfabric serves
// best; otherwise UCX does.
func OfLibfabric(device string) bool {
	return slices.ContainsFunc(libfabrics, func(o string) bool { return strings.HasPrefix(device, o) })
}
