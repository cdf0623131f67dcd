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
	"github.com/ferrympi/ferry/mtl/trial"
)

// What stands in the C library's environment when libfabric is loaded, and when its
// endpoints open. Children don't inherit it.

// always is set whatever the user's environment says: otherwise messages are mixed up
// (testdata/claim.c) or come from another process (testdata/orphan.c).
var always = []string{"FI_OFI_RXM_SAR_LIMIT=0", "FI_OFI_RXM_USE_SRX=1"}

// quiet keeps libpsm_infinipath, which libfabric may bring along, from taking SIGSEGV,
// SIGINT, SIGTERM and others when it is loaded, and exiting on them.
const quiet = "IPATH_NO_BACKTRACE=1"

// caching names what users set who know what a cache of registrations sees.
var caching = []string{"FI_MR_CACHE_MONITOR", "FI_MR_CACHE_MAX_COUNT", "FI_MR_CACHE_MAX_SIZE", "FI_EFA_MR_CACHE_ENABLE"}

// registrations has providers that remember which memory they have registered hear from
// the kernel which of it is gone. By themselves they hear from the C library, which Go does
// not ask for memory: the first contents of an address would be sent again. Where the kernel
// does not tell, they remember nothing; efa goes by a variable of its own.
func registrations(root string, faults func() bool) []string {
	if _, err := os.Stat(filepath.Join(root, "dev/kdreg2")); err == nil {
		return []string{"FI_MR_CACHE_MONITOR=kdreg2"}
	}
	if faults() {
		return []string{"FI_MR_CACHE_MONITOR=userfaultfd"}
	}
	return []string{"FI_MR_CACHE_MAX_COUNT=0", "FI_EFA_MR_CACHE_ENABLE=0"}
}

// mayFault reports whether this process may have its page faults told.
func mayFault() bool {
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|unix.O_NONBLOCK, 0, 0)
	if errno == 0 {
		unix.Close(int(fd))
	}
	return errno == 0
}

// keys tells jobs apart whose providers otherwise have one constant key for all: processes
// of two jobs on one machine would meet.
func keys(job string) []string {
	sum := sha256.Sum256([]byte("ferry job " + job))
	hex := fmt.Sprintf("%x", sum[:16])
	dashed := strings.Join([]string{hex[:8], hex[8:12], hex[12:16], hex[16:20], hex[20:]}, "-")
	return []string{"FI_PSM3_UUID=" + dashed, "FI_PSM2_UUID=" + dashed, "FI_OPX_UUID=" + hex}
}

// environment returns what is set for a job, or for none (""), so far as the user, whose
// environment has looks up, leaves it to ferry.
func environment(job string, has func(string) bool, cache []string) []string {
	left := []string{quiet}
	if !slices.ContainsFunc(caching, has) {
		left = append(left, cache...)
	}
	if job != "" {
		left = append(left, keys(job)...)
	}
	left = slices.DeleteFunc(left, func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return has(name)
	})
	return append(slices.Clone(always), left...)
}

// setEnvironment sets it, and returns what it is.
func setEnvironment(job string) []string {
	all := environment(job, func(name string) bool { _, set := os.LookupEnv(name); return set }, registrations("/", mayFault))
	for _, v := range all {
		name, value, _ := strings.Cut(v, "=")
		libfabric.Setenv(name, value)
	}
	return all
}

// userVariables returns the user's variables of libfabric for messages, without those that only log and without the
// values of keys.
func userVariables() (all []string) {
	for _, v := range trial.Variables("FI_", always) {
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

// userNote returns the end of a message about a failure that the user's variables may have caused, or "" without any.
func userNote() string {
	all := userVariables()
	if len(all) == 0 {
		return ""
	}
	return "; the user has set " + strings.Join(all, ", ")
}
