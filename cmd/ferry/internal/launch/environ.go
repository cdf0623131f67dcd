package launch

import (
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/bootstrap/local/server"
)

// processors returns the environment variables of a rank that is bound to these processors, or to none. With
// one processor, Go would run one goroutine at a time, and switch after 10 ms or when it waits. While a rank
// computes, its library could neither answer a peer nor continue a large message. With a second thread for
// goroutines the kernel switches, as soon as a peer rings. With more than two, idle threads of the Go
// scheduler take the processor from the one that works (docs/garbage-collection.md). A rank with several
// processors has a thread for each.
func processors(binding []int) []string {
	switch n := len(binding); n {
	case 0:
		return nil
	case 1:
		return []string{"GOMAXPROCS=2"}
	default:
		return []string{"GOMAXPROCS=" + strconv.Itoa(n)}
	}
}

// inherited returns the environment that ranks in the working directory dir get of the
// launcher's. The descriptor of a PMI server stays here.
func inherited(dir string) []string {
	if fd, err := strconv.Atoi(os.Getenv("PMI_FD")); err == nil && fd > 2 {
		unix.CloseOnExec(fd)
	}
	env := server.InheritedEnviron(os.Environ())
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
