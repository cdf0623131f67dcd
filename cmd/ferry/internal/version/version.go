// Package version has the version of this ferry, which is the same for all builds of one commit.
package version

import (
	_ "embed"
	"regexp"
	"runtime/debug"
	"strings"
)

// Release is the version of the next release.
const Release = "0.1.0"

// archiveRef is the commit and the nearest tag of an archive. Git inserts them (.gitattributes) for `make dist` and for a
// forge. In a checkout and in a fetched module it is a pattern.
//
//go:embed archived.txt
var archiveRef string

// commit is the commit of `make build`, with ".dirty" if sources were changed. It is known with
// GOFLAGS=-buildvcs=false, too.
var commit string

// String returns the version of a release, or the next version with "-dev" and the commit if it is known, such as
// "0.1.0-dev+0123456789ab".
func String() string {
	info, _ := debug.ReadBuildInfo()
	return fromSources(archiveRef, commit, ferryModule(info))
}

// Module is ferry's path.
const Module = "github.com/ferrympi/ferry"

// ModuleVersion returns the module version of the sources of this program, or "" if they were in a folder.
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

// Commit returns the commit of `make build`, for further builds from the same sources.
func Commit() string { return commit }

// ferryModule returns the build information of ferry's module. In a program of `ferry build`, ferry is a dependency,
// and the commit is that of the program.
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

// shortHashLength is the length of a shown hash, as in versions of the go command.
const shortHashLength = 12

var (
	hashPattern    = regexp.MustCompile(`^[0-9a-f]{12,}$`)
	releasePattern = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?$`)
	// pseudoPattern matches a version of the go command for a commit without a tag.
	pseudoPattern = regexp.MustCompile(`^v.*[-.][0-9]{14}-([0-9a-f]{12})(\+dirty)?$`)
	// describedPattern matches git's name for a commit after a tag.
	describedPattern = regexp.MustCompile(`-[0-9]+-g[0-9a-f]+$`)
)

// fromSources returns the version. That of an archive has precedence, because it may be unpacked inside another
// repository, whose commit the go command uses. info may be nil.
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

// A Library is a linked module.
type Library struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// Libraries returns the linked modules and Go itself.
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
