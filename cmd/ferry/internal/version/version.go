// Package version says which ferry this is.
package version

import (
	"runtime/debug"
	"strings"
)

// Release is the version that the sources are on the way to.
const Release = "0.1.0"

// String returns the version: that of the module if it was built as a
// dependency or from a tag, else Release and the commit.
func String() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return Release + "-dev"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return strings.TrimPrefix(v, "v")
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return Release + "-dev+" + s.Value[:12]
		}
	}
	return Release + "-dev"
}

// Library is a module that is linked in.
type Library struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// Libraries returns the modules that this program is made of, and Go itself.
func Libraries() []Library {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	libs := []Library{{"go", strings.TrimPrefix(info.GoVersion, "go")}}
	for _, d := range info.Deps {
		libs = append(libs, Library{d.Path, strings.TrimPrefix(d.Version, "v")})
	}
	return libs
}
