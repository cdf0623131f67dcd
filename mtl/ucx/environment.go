package ucx

import (
	"os"
	"slices"
	"strings"

	"github.com/ferrympi/ferry/internal/ucp"
	"github.com/ferrympi/ferry/mtl/base"
)

// The variables below are set in the C library's environment while UCX is loaded and transports open. Child processes don't
// inherit them.

// forcedVariables override the user's environment. UCX would handle the signals by which Go programs recover from nil pointers, and
// abort the process.
var forcedVariables = []string{"UCX_ERROR_SIGNALS="}

// defaultVariables are set unless the user sets them.
//
// The hooks of UCX's registration cache patch the C library's allocator, which Go does not use, so that UCX would send stale contents of
// an address. They are disabled, and this package reports unpinned memory itself (module.unpin). The cache must exist: without one,
// UCX 1.16 to 1.22 crash in peer mode when a peer leaves in the middle of a long message.
//
// Errors are returned, and need no log lines on standard output.
//
// The receive segment over tcp is the longest packet. A long message whose receive UCX unpacks (shim.c, cutting) transfers 3.6 GB/s with
// UCX's 64 KiB, and 6.1 with 512 KiB.
//
// Connections over tcp don't block. Otherwise the first message to an unresponsive host would hold the engine's lock for two
// minutes.
var defaultVariables = []string{
	"UCX_TCP_RX_SEG_SIZE=512k", "UCX_TCP_CONN_NB=y",
	"UCX_MEM_MMAP_HOOK_MODE=none", "UCX_MEM_CUDA_HOOK_MODE=none",
	"UCX_RCACHE_MAX_UNRELEASED=512M", "UCX_LOG_LEVEL=fatal", "UCX_WARN_UNUSED_ENV_VARS=n", "UCX_VFS_ENABLE=n",
}

// peerModeVariables enable the error handling of shared-memory transports, which peer mode requires.
var peerModeVariables = []string{"UCX_CMA_MEMORY_INVALIDATE=y", "UCX_POSIX_ERROR_HANDLING=y", "UCX_SYSV_ERROR_HANDLING=y", "UCX_XPMEM_ERROR_HANDLING=y"}

// environment returns the variables to set. It omits variables that the user has set, except for forcedVariables.
func environment(peerMode bool, has func(string) bool) []string {
	defaults := slices.Clone(defaultVariables)
	if peerMode {
		defaults = append(defaults, peerModeVariables...)
	}
	return base.Variables(forcedVariables, defaults, has)
}

// setEnvironment sets the variables of environment, and returns them.
func setEnvironment(p *params) []string {
	all := environment(p.ErrorMode == "peer", func(name string) bool { _, set := os.LookupEnv(name); return set })
	base.SetVariables(all, ucp.Setenv)
	return all
}

// userVariables returns the user's variables of UCX, in order.
func userVariables() []string { return base.UserVariables("UCX_", forcedVariables) }

// userSets reports whether the user has set a variable of UCX whose name satisfies is.
func userSets(is func(name string) bool) bool {
	return slices.ContainsFunc(userVariables(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return is(name)
	})
}
