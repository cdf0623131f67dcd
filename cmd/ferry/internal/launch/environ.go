package launch

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/bootstrap/local/server"
)

// inherited is the environment that ranks get of the launcher's. The descriptor of a PMI
// server stays here.
func inherited() []string {
	if fd, err := strconv.Atoi(os.Getenv("PMI_FD")); err == nil && fd > 2 {
		unix.CloseOnExec(fd)
	}
	return server.Inherit(os.Environ())
}
