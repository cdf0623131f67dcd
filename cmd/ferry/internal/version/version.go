// Package version says which ferry this is: the same for one commit, however it was built.
package version

import (
	_ "embed"
	"regexp"
	"runtime/debug"
	"strings"
)

// Release is the version that the sources are on the way to.
const Release = "0.1.0"

// archived is the commit and the nearest tag of an archive: git writes them there
// (.gitattributes), for `make dist` and for those of a forge. A checkout, and a module that
// the go command fetched, have a pattern in its place.
//
//go:embed archived.txt
var archiveRef string

// commit is what `make build` found by git, with ".dirty" behind it if sources were changed:
// builds may have been told to leave that out (GOFLAGS=-buildvcs=false).
var commit string

// String returns the version: that of the release, or what the next one will be with "-dev",
// and the commit as far as it is known: "0.1.0-dev+0123456789ab".
func String() string {
	info, _ := debug.ReadBuildInfo()
	return fromSources(archiveRef, commit, ferryModule(info))
}

// Module is ferry's path.
const Module = "github.com/ferrympi/ferry"

// Fetched returns the version by which the go command knows the sources that this program
// was built from, or "" if it was built from a folder.
func ModuleVersion() string {
	info, _ := debug.ReadBuildInfo()
	if info = ferryModule(info); info == nil || strings.HasSuffix(info.Main.Version, "+dirty") {
		return ""
	}
	if v := info.Main.Version; releasePattern.MatchString(v) || pseudoPattern.MatchString(v) {
		return v
	}
	return ""
}

// Commit is what `make build` has said of the sources, for programs that are built from the
// same ones.
func Commit() string { return commit }

// asMain returns what is known of ferry's module: it is a dependency of a program that
// `ferry build` has made, whose own module has no version. What the go command knows of a
// commit is the program's, then.
func ferryModule(info *debug.BuildInfo) *debug.BuildInfo {
	if info == nil || info.Main.Path == Module {
		return info
	}
	for _, d := range info.Deps {
		if d.Path == Module && d.Replace == nil {
			return &debug.BuildInfo{Main: *d}
		}
	}
	return nil
}

// short is how much of a commit's hash is shown: as much as the go command puts into versions.
const shortHashLength = 12

var (
	hashPattern    = regexp.MustCompile(`^[0-9a-f]{12,}$`)
	releasePattern = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?$`)
	// pseudo is a version of the go command for a commit without a tag.
	pseudoPattern = regexp.MustCompile(`^v.*[-.][0-9]{14}-([0-9a-f]{12})(\+dirty)?$`)
	// described is git's name for a commit behind a tag.
	describedPattern = regexp.MustCompile(`-[0-9]+-g[0-9a-f]+$`)
)

// of returns the version. What an archive says wins: it may have been unpacked inside another
// repository, whose commit the go command would take. info is nil if there is none.
func fromSources(archived, commit string, info *debug.BuildInfo) string {
	sum, tag, _ := strings.Cut(strings.TrimSpace(archived), " ")
	switch {
	case hashPattern.MatchString(sum) && releasePattern.MatchString(tag) && !describedPattern.MatchString(tag):
		return tag[1:]
	case hashPattern.MatchString(sum):
		return developmentVersion(sum[:shortHashLength], false)
	case info == nil:
		info = &debug.BuildInfo{}
	}
	if m := pseudoPattern.FindStringSubmatch(info.Main.Version); m != nil {
		return developmentVersion(m[1], m[2] != "")
	}
	if v := strings.TrimSuffix(info.Main.Version, "+dirty"); releasePattern.MatchString(v) {
		return strings.TrimPrefix(info.Main.Version, "v")
	}
	if sum, dirty := strings.CutSuffix(commit, ".dirty"); hashPattern.MatchString(sum) {
		return developmentVersion(sum[:shortHashLength], dirty)
	}
	var dirty bool
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			sum = s.Value
		case "vcs.modified":
			dirty = s.Value == "true"
		}
	}
	if hashPattern.MatchString(sum) {
		return developmentVersion(sum[:shortHashLength], dirty)
	}
	return Release + "-dev"
}

func developmentVersion(commit string, dirty bool) string {
	v := Release + "-dev+" + commit
	if dirty {
		v += ".dirty"
	}
	return v
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
