package ofi

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/mtl/base"
)

// The variables below are set in the C library's environment while libfabric is loaded and endpoints open. Child processes don't
// inherit them.

// forcedVariables override the user's environment. Other values mix messages (testdata/claim.c) or return
// those of another process (testdata/orphan.c).
var forcedVariables = []string{"FI_OFI_RXM_SAR_LIMIT=0", "FI_OFI_RXM_USE_SRX=1"}

// noSignalHandlers prevents libpsm_infinipath, which libfabric may load, from handling SIGSEGV, SIGINT, SIGTERM and other signals by
// exiting.
const noSignalHandlers = "IPATH_NO_BACKTRACE=1"

// cacheVariables configure the registration cache. If the user sets one of them, ferry sets none.
var cacheVariables = []string{"FI_MR_CACHE_MONITOR", "FI_MR_CACHE_MAX_COUNT", "FI_MR_CACHE_MAX_SIZE", "FI_EFA_MR_CACHE_ENABLE"}

// cacheSettings returns variables that let the registration cache of providers be notified of unmapped memory by the kernel. By
// default the cache intercepts the C library's allocator, which Go does not use, so that a provider would send
// stale contents of an address. Without support in the kernel the cache is disabled; efa has its own variable for that.
func cacheSettings(root string, faults func() bool) []string {
	if _, err := os.Stat(filepath.Join(root, "dev/kdreg2")); err == nil {
		return []string{"FI_MR_CACHE_MONITOR=kdreg2"}
	}
	if faults() {
		return []string{"FI_MR_CACHE_MONITOR=userfaultfd"}
	}
	return []string{"FI_MR_CACHE_MAX_COUNT=0", "FI_EFA_MR_CACHE_ENABLE=0"}
}

// canUseUserfaultfd reports whether the kernel permits userfaultfd.
func canUseUserfaultfd() bool {
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|unix.O_NONBLOCK, 0, 0)
	if errno == 0 {
		unix.Close(int(fd))
	}
	return errno == 0
}

// jobKeys returns keys for providers that otherwise use one constant key, with which processes of two jobs on a machine
// would connect.
func jobKeys(job string) []string {
	sum := sha256.Sum256([]byte("ferry job " + job))
	hex := fmt.Sprintf("%x", sum[:16])
	dashed := strings.Join([]string{hex[:8], hex[8:12], hex[12:16], hex[16:20], hex[20:]}, "-")
	return []string{"FI_PSM3_UUID=" + dashed, "FI_PSM2_UUID=" + dashed, "FI_OPX_UUID=" + hex}
}

// environment returns the variables for a job, or for none if job is "". It omits variables that the user has set, except
// for forcedVariables.
func environment(job string, has func(string) bool, cache []string) []string {
	defaults := []string{noSignalHandlers}
	if !slices.ContainsFunc(cacheVariables, has) {
		defaults = append(defaults, cache...)
	}
	if job != "" {
		defaults = append(defaults, jobKeys(job)...)
	}
	return base.Variables(forcedVariables, defaults, has)
}

// setEnvironment sets the variables of environment, and returns them.
func setEnvironment(job string) []string {
	all := environment(job, func(name string) bool { _, set := os.LookupEnv(name); return set }, cacheSettings("/", canUseUserfaultfd))
	base.SetVariables(all, libfabric.Setenv)
	return all
}

// userVariables returns the user's variables of libfabric for messages. It omits those for logging, and the values of
// keys.
func userVariables() (all []string) {
	for _, v := range base.UserVariables("FI_", forcedVariables) {
		switch name, _, _ := strings.Cut(v, "="); {
		case strings.HasPrefix(name, "FI_LOG_"):
		case strings.HasSuffix(name, "_UUID"):
			all = append(all, name)
		default:
			all = append(all, v)
		}
	}
	return all
}

// userNote returns a suffix for errors that the user's variables may have caused, or "".
func userNote() string {
	all := userVariables()
	if len(all) == 0 {
		return ""
	}
	return "; the user has set " + strings.Join(all, ", ")
}
