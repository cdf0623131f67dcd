package launch

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Variables that another launcher gave to the launcher of this job, if that is itself one
// of its ranks. They name this process, and no rank of this job: two that spoke to that
// launcher in its name would break its job. What a rank starts by another launcher gets
// its own.
var others = []string{"PMI_", "PMIX_", "PMI2_"}

// inherited is the environment that ranks get of the launcher's. The descriptor of a PMI
// server stays here.
func inherited() []string {
	if fd, err := strconv.Atoi(os.Getenv("PMI_FD")); err == nil && fd > 2 {
		unix.CloseOnExec(fd)
	}
	return slices.DeleteFunc(os.Environ(), func(entry string) bool {
		return slices.ContainsFunc(others, func(prefix string) bool { return strings.HasPrefix(entry, prefix) })
	})
}
