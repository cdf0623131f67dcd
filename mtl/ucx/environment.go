package ucx

import (
	"os"
	"slices"
	"strings"

	"github.com/ferrympi/ferry/internal/ucp"
	"github.com/ferrympi/ferry/mtl/trial"
)

// What stands in the C library's environment when UCX is loaded, and when its transports
// open. Children don't inherit it.

// always is set whatever the user's environment says: UCX would take the signals by which Go
// programs recover from nil pointers, and end the process on them.
var always = []string{"UCX_ERROR_SIGNALS="}

// usual is set unless the user has it. UCX's hooks patch the C library, which Go does not ask
// for memory: a cache of registrations that relied on them would send the former contents of an
// address. So it has none, and hears of memory from this package (module.changes). It has to have a
// cache: without one UCX 1.16 to 1.22 crash in peer mode when a peer goes in the middle of a long message.
// What fails is told by errors, and not also on standard output. Over tcp a packet is as long as what is
// received at a time: a long message whose receive UCX unpacks (shim.c, cutting) takes 3.6 GB/s in UCX's
// 64 KiB, and 6.1 in 512.
// Connections over tcp are made without blocking. Otherwise the first message to a host that does not answer would hold the
// engine's lock for two minutes.
var usual = []string{
	"UCX_TCP_RX_SEG_SIZE=512k", "UCX_TCP_CONN_NB=y",
	"UCX_MEM_MMAP_HOOK_MODE=none", "UCX_MEM_CUDA_HOOK_MODE=none",
	"UCX_RCACHE_MAX_UNRELEASED=512M", "UCX_LOG_LEVEL=fatal", "UCX_WARN_UNUSED_ENV_VARS=n", "UCX_VFS_ENABLE=n",
}

// handling has transports of shared memory tell of peers that have died, without which peer mode
// does not use them.
var handling = []string{"UCX_CMA_MEMORY_INVALIDATE=y", "UCX_POSIX_ERROR_HANDLING=y", "UCX_SYSV_ERROR_HANDLING=y", "UCX_XPMEM_ERROR_HANDLING=y"}

// environment returns what is set, so far as the user, whose environment has looks up, leaves
// it to ferry.
func environment(peerMode bool, has func(string) bool) []string {
	left := slices.Clone(usual)
	if peerMode {
		left = append(left, handling...)
	}
	left = slices.DeleteFunc(left, func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return has(name)
	})
	return append(slices.Clone(always), left...)
}

// setEnvironment sets it, and returns what it is.
func setEnvironment(p *params) []string {
	all := environment(p.ErrorMode == "peer", func(name string) bool { _, set := os.LookupEnv(name); return set })
	for _, v := range all {
		name, value, _ := strings.Cut(v, "=")
		ucp.Setenv(name, value)
	}
	return all
}

// users returns the user's own variables of UCX, in order.
func users() []string { return trial.Variables("UCX_", always) }

// userSets reports whether the user has set a variable of UCX whose name is so.
func userSets(is func(name string) bool) bool {
	return slices.ContainsFunc(users(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return is(name)
	})
}
