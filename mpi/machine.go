package mpi

import (
	"os"
	"runtime/debug"
)

// ProcessorName returns the name of the host (MPI_Get_processor_name). It needs no session. The
// processes of a container have its name.
func ProcessorName() (string, error) { return os.Hostname() }

// modulePath is the path of ferry's module.
const modulePath = "github.com/ferrympi/ferry"

// LibraryVersion returns the version of ferry in the running program (MPI_Get_library_version),
// such as "ferry v0.1.0". It needs no session. A build from a folder without a version has
// "ferry (devel)".
func LibraryVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return versionOf(nil)
	}
	return versionOf(info)
}

// versionOf returns the version of ferry in a program with this build information, or nil.
func versionOf(info *debug.BuildInfo) string {
	version := ""
	if info != nil {
		for _, m := range append(info.Deps, &info.Main) {
			if m.Path != modulePath {
				continue
			}
			if version = m.Version; m.Replace != nil {
				version = m.Replace.Version // Empty for a folder.
			}
		}
	}
	if version == "" {
		version = "(devel)"
	}
	return "ferry " + version
}
