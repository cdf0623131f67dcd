package launch

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/bootstrap/local/server"
)

// processors is what Go programs are told of the processors that they get. With one, Go runs one
// goroutine at a time, and switches after 10 ms or when it waits: while a rank computes, its
// library could neither answer a peer nor go on with a large message. With a second thread for
// goroutines the kernel switches, as soon as a peer rings. With more than two, threads that look
// for work take the processor from the one that has some (docs/garbage-collection.md).
func processors(places []int) []string {
	if len(places) != 1 {
		return nil
	}
	return []string{"GOMAXPROCS=2"}
}

// inherited is the environment that ranks get of the launcher's. The descriptor of a PMI
// server stays here.
func inherited() []string {
	if fd, err := strconv.Atoi(os.Getenv("PMI_FD")); err == nil && fd > 2 {
		unix.CloseOnExec(fd)
	}
	return server.Inherit(os.Environ())
}
