package report

import (
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/cmd/ferry/internal/version"
	"github.com/ferrympi/ferry/internal/cpu"
)

// ThisMachine describes the machine and the program; what it can't find out is
// "unknown".
func ThisMachine() Machine {
	m := Machine{Host: "unknown", Kernel: "unknown", CPU: cpu.Model(), Cores: runtime.NumCPU(), Ferry: version.String()}
	if name, err := os.Hostname(); err == nil {
		m.Host = name
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = strings.Join([]string{
			unix.ByteSliceToString(u.Sysname[:]), unix.ByteSliceToString(u.Release[:]), unix.ByteSliceToString(u.Machine[:]),
		}, " ")
	}
	return m
}

// Libraries are those that the stacks stand on, each once.
func Libraries(stacks []Stack) []Library {
	var all []Library
	seen := map[string]bool{}
	for _, s := range stacks {
		name, version, _ := strings.Cut(s.Library, " ")
		if name != "" && !seen[s.Library] {
			seen[s.Library] = true
			all = append(all, Library{Name: name, Version: version})
		}
	}
	return all
}
