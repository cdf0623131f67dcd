package mpi

import (
	"os"
	"runtime/debug"
	"testing"
)

func TestProcessorName_IsTheHostName(t *testing.T) {
	want, err := os.Hostname()
	if err != nil {
		t.Skipf("no host name: %v", err)
	}
	if got, err := ProcessorName(); got != want || err != nil {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
}

func TestLibraryVersion_EachBuild_NamesTheVersionOfFerry(t *testing.T) {
	ferry := func(version string, replace *debug.Module) *debug.Module {
		return &debug.Module{Path: modulePath, Version: version, Replace: replace}
	}
	for name, x := range map[string]struct {
		info *debug.BuildInfo
		want string
	}{
		"no information":    {nil, "ferry (devel)"},
		"own program":       {&debug.BuildInfo{Main: *ferry("v0.2.0", nil)}, "ferry v0.2.0"},
		"folder":            {&debug.BuildInfo{Main: *ferry("(devel)", nil)}, "ferry (devel)"},
		"dependency":        {&debug.BuildInfo{Main: debug.Module{Path: "example.org/x", Version: "v9.0.0"}, Deps: []*debug.Module{ferry("v0.3.1", nil)}}, "ferry v0.3.1"},
		"replaced by other": {&debug.BuildInfo{Deps: []*debug.Module{ferry("v0.3.1", ferry("v0.3.2", nil))}}, "ferry v0.3.2"},
		"replaced by clone": {&debug.BuildInfo{Deps: []*debug.Module{ferry("v0.0.0", &debug.Module{Path: "../ferry"})}}, "ferry (devel)"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := versionOf(x.info); got != x.want {
				t.Errorf("%q, want %q", got, x.want)
			}
		})
	}
	if LibraryVersion() == "" {
		t.Error("no version of this program")
	}
}
