package host_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/plugin/host"
)

// Libraries in C open descriptors without close-on-exec, and a parent may leave some.
func TestStart_InheritableDescriptors_StayWithTheRank(t *testing.T) {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], 0); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	for _, command := range []int{unix.F_DUPFD, unix.F_DUPFD_CLOEXEC} { // Go's exec moves its own ones above the highest
		fd, err := unix.FcntlInt(uintptr(pipe[0]), command, 400)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
	}
	mine, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", pipe[0]))
	if err != nil {
		t.Fatal(err)
	}
	overBoth(t, func(t *testing.T, entry func(string) host.Entry) {
		e := script(t, "#!/bin/sh\nexec %s \"$@\"\n")
		e.Protocol = entry("").Protocol
		for _, e := range []host.Entry{entry("loopback"), e} {
			t.Run(filepath.Base(e.Command[0]), func(t *testing.T) {
				if _, _, _, err := open(t, e, io.Discard, nil); err != nil {
					t.Fatal(err)
				}
				links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", child(t)))
				if len(links) < 6 {
					t.Errorf("descriptors %v", links)
				}
				for _, link := range links {
					if target, _ := os.Readlink(link); target == mine {
						t.Errorf("the plugin has inherited %s as %s", target, link)
					}
				}
			})
		}
	})
}

// A rank that is killed can't remove the socket of its plugin.
func TestStart_Connected_LeavesNoSocket(t *testing.T) {
	if _, _, _, err := open(t, entry("loopback"), io.Discard, nil); err != nil {
		t.Fatal(err)
	}
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", child(t)))
	if err != nil {
		t.Fatal(err)
	}
	_, dir, ok := strings.Cut(string(environ), "PLUGIN_UNIX_SOCKET_DIR=")
	dir, _, _ = strings.Cut(dir, "\x00")
	if _, err := os.Stat(dir); !ok || !os.IsNotExist(err) {
		t.Errorf("folder %q: %v", dir, err)
	}
}
