package ofi

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Variables of the user take precedence.
func TestCacheSettings_KernelSupport_SelectsMonitor(t *testing.T) {
	root := t.TempDir()
	yes, no := func() bool { return true }, func() bool { return false }
	nowhere := cacheSettings(root, no)
	if got := strings.Join(nowhere, " "); got != "FI_MR_CACHE_MAX_COUNT=0 FI_EFA_MR_CACHE_ENABLE=0" {
		t.Error(got)
	}
	if got := cacheSettings(root, yes); !slices.Equal(got, []string{"FI_MR_CACHE_MONITOR=userfaultfd"}) {
		t.Error(got)
	}
	if err := os.Mkdir(filepath.Join(root, "dev"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "dev/kdreg2"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := cacheSettings(root, yes); !slices.Equal(got, []string{"FI_MR_CACHE_MONITOR=kdreg2"}) {
		t.Error(got)
	}
	for _, name := range cacheVariables {
		got := environment("", func(n string) bool { return n == name }, nowhere)
		if slices.ContainsFunc(got, func(v string) bool { return strings.Contains(v, "CACHE") }) {
			t.Errorf("the user has set %s, and ferry sets %q", name, got)
		}
	}
}

// All processes of a job have the same keys, in the format of each provider. Keys of the user take precedence.
func TestJobKeys_TwoJobs_Differ(t *testing.T) {
	a, b := jobKeys("job a"), jobKeys("job b")
	if slices.Equal(a, b) || !slices.Equal(a, jobKeys("job a")) {
		t.Errorf("%q, %q", a, b)
	}
	if _, psm3, _ := strings.Cut(a[0], "="); len(psm3) != 36 || strings.Count(psm3, "-") != 4 {
		t.Errorf("psm3's is %s", psm3)
	}
	if _, opx, _ := strings.Cut(a[2], "="); len(opx) != 32 {
		t.Errorf("opx's is %s", opx)
	}
	for _, v := range environment("job a", func(n string) bool { return n == "FI_PSM3_UUID" }, nil) {
		if strings.HasPrefix(v, "FI_PSM3_UUID=") {
			t.Error("the user's key is overridden")
		}
	}
	for _, v := range environment("", func(string) bool { return true }, nil) {
		if !slices.Contains(forcedVariables, v) {
			t.Errorf("%s is set although the user has set it", v)
		}
	}
}
