package launch

import (
	"os"
	"path/filepath"
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

// inherited returns the environment that ranks in the working directory dir get of the
// launcher's. The descriptor of a PMI server stays here.
func inherited(dir string) []string {
	if fd, err := strconv.Atoi(os.Getenv("PMI_FD")); err == nil && fd > 2 {
		unix.CloseOnExec(fd)
	}
	env := server.Inherit(os.Environ())
	if dir == "" {
		return env
	}
	if path, err := absolute(dir); err == nil {
		env = append(env, "PWD="+path)
	}
	return env
}

// absolute returns the absolute path of a directory, with its symbolic links as in the path that
// a shell's cd leaves in PWD, or without them where dots follow a link.
func absolute(dir string) (string, error) {
	path, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	meant, err := os.Stat(dir)
	if err != nil {
		return "", err
	}
	if st, err := os.Stat(path); err == nil && os.SameFile(st, meant) {
		return path, nil
	}
	if path, err = filepath.EvalSymlinks(dir); err != nil {
		return "", err
	}
	return filepath.Abs(path)
}
