package version

import (
	"runtime/debug"
	"strings"
	"testing"
)

const commit0 = "0123456789abcdef0123456789abcdef01234567"

func built(version string, settings ...string) *debug.BuildInfo {
	info := &debug.BuildInfo{Main: debug.Module{Path: "github.com/ferrympi/ferry", Version: version}}
	for _, s := range settings {
		key, value, _ := strings.Cut(s, "=")
		info.Settings = append(info.Settings, debug.BuildSetting{Key: key, Value: value})
	}
	return info
}

func TestFromSources_OneCommit_HasOneVersion(t *testing.T) {
	const pattern, dev = "$Format:%H %(describe:tags)$\n", Release + "-dev+0123456789ab"
	for name, c := range map[string]struct {
		archived, commit string
		info             *debug.BuildInfo
		want             string
	}{
		"a checkout":                          {pattern, "", built("v0.0.0-20261122132244-0123456789ab"), dev},
		"a checkout behind a tag":             {pattern, "", built("v0.0.10-0.20261122132244-0123456789ab"), dev},
		"a checkout behind a tag before 1.0":  {pattern, "", built("v0.1.0-rc.1.0.20261122132244-0123456789ab"), dev},
		"a checkout with changes":             {pattern, "", built("v0.0.0-20261122132244-0123456789ab+dirty"), dev + ".dirty"},
		"an earlier go command":               {pattern, "", built("(devel)", "vcs.revision="+commit0, "vcs.modified=false"), dev},
		"an earlier go command, with changes": {pattern, "", built("(devel)", "vcs.revision="+commit0, "vcs.modified=true"), dev + ".dirty"},
		"-buildvcs=false":                     {pattern, "", built("(devel)"), Release + "-dev"},
		"make build, -buildvcs=false":         {pattern, commit0, built("(devel)"), dev},
		"make build with changes":             {pattern, commit0 + ".dirty", built("(devel)"), dev + ".dirty"},
		"make build, git failed":              {pattern, ".dirty", built("(devel)"), Release + "-dev"},
		"an archive":                          {commit0 + " \n", "", built("(devel)"), dev},
		"an archive behind a tag":             {commit0 + " v0.0.9-12-g0123456\n", "", built("(devel)"), dev},
		"an archive in another repository":    {commit0 + " \n", "", built("v0.0.0-20200101000000-ffffffffffff"), dev},
		"a release":                           {pattern, commit0, built("v0.1.0"), "0.1.0"},
		"a release candidate":                 {pattern, commit0, built("v0.1.0-rc.1"), "0.1.0-rc.1"},
		"an archive of a release":             {commit0 + " v0.1.0\n", "", built("(devel)"), "0.1.0"},
		"an archive of a release candidate":   {commit0 + " v0.1.0-rc.1\n", "", nil, "0.1.0-rc.1"},
		"no information":                      {pattern, "", nil, Release + "-dev"},
		"damage":                              {"\x00", "xyz", built("%"), Release + "-dev"},
	} {
		if got := fromSources(c.archived, c.commit, c.info); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestRelease_IsNotInChangelog(t *testing.T) {
	released := changelog(t)
	for _, r := range released {
		if r == Release {
			t.Errorf("CHANGELOG.md has %s as released: Release is the next one", r)
		}
	}
}
