package trial

import (
	"slices"
	"strings"
)

// libfabricDevices are the name prefixes of devices for providers of libfabric: Slingshot (cxi), Omni-Path (hfi1, qib), EFA (efa, rdmap) and
// usNIC. /sys lists some of them among those of InfiniBand and RoCE, which UCX supports.
var libfabricDevices = []string{"cxi", "hfi1", "qib", "efa", "rdmap", "usnic"}

// IsLibfabricDevice reports whether libfabric is the preferred library for a device of /sys/class. Otherwise UCX is.
func IsLibfabricDevice(device string) bool {
	return slices.ContainsFunc(libfabricDevices, func(o string) bool { return strings.HasPrefix(device, o) })
}
