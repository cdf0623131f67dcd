package base

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/cpu"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/trial"
	"github.com/ferrympi/ferry/progress"
)

func TestVariables_UserSetsSome_OnlyForcedOnesAreOverridden(t *testing.T) {
	has := func(name string) bool { return name == "X_FORCED" || name == "X_LEFT" }
	got := Variables([]string{"X_FORCED=1"}, []string{"X_LEFT=2", "X_OWN=3=4"}, has)
	if want := []string{"X_FORCED=1", "X_OWN=3=4"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	set := map[string]string{}
	if SetVariables(got, func(name, value string) { set[name] = value }); len(set) != 2 || set["X_OWN"] != "3=4" {
		t.Errorf("%q", set)
	}
	t.Setenv("XYZ_B", "b=c")
	t.Setenv("XYZ_A", "a")
	t.Setenv("XYZ_FORCED", "")
	if got := UserVariables("XYZ_", []string{"XYZ_FORCED=1"}); !slices.Equal(got, []string{"XYZ_A=a", "XYZ_B=b=c"}) {
		t.Errorf("%q", got)
	}
}

func TestMatchesAny_MalformedPattern_MatchesItself(t *testing.T) {
	for _, c := range []struct {
		patterns, names []string
		want            bool
	}{
		{[]string{"eth*"}, []string{"eth0"}, true}, {[]string{"mlx5_0"}, []string{"mlx5_0:1", "mlx5_0"}, true}, {[]string{"eth*"}, []string{"ib0"}, false},
		{[]string{"[a"}, []string{"[a"}, true}, {[]string{"[a"}, []string{"a"}, false}, {nil, []string{"a"}, false},
	} {
		if got := MatchesAny(c.patterns, c.names...); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestFindDevice_NoHardware_IsIgnored(t *testing.T) {
	sys := t.TempDir()
	for _, dir := range []string{"a_0", "b_0/device", "c_0/device"} {
		if err := os.MkdirAll(filepath.Join(sys, "class/net", dir), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	all := func(string) bool { return true }
	for _, c := range []struct {
		pattern string
		is      func(string) bool
		want    string
	}{{"net/", all, "b_0"}, {"net/c*", all, "c_0"}, {"net/", func(name string) bool { return name != "b_0" }, "c_0"}, {"net/a*", all, ""}, {"other/", all, ""}} {
		name, hardware := FindDevice(sys, c.pattern, c.is)
		if name != c.want || (hardware == "") != (name == "") {
			t.Errorf("%s: %q in %q, want %q", c.pattern, name, hardware, c.want)
		}
	}
}

func TestSplitCardEntry_UntrustedBytes_AreRefused(t *testing.T) {
	entry := "\x02headoffer\x00\x00addr\x00ess"
	fields, err := SplitCardEntry([]byte(entry), 2, 5, 3)
	if err != nil || string(fields[0]) != "offer" || len(fields[1]) != 0 || string(fields[2]) != "addr\x00ess" {
		t.Errorf("%q, %v", fields, err)
	}
	for in, want := range map[string]string{
		"": "no entry", "\x03": "version 3", "\x02": "makes no sense", "\x02he": "makes no sense", "\x02head\x00\x00address": "makes no sense", "\x02headoffer\x00\x00": "makes no sense", "\x02headoffer\x00address": "makes no sense",
	} {
		if _, err := SplitCardEntry([]byte(in), 2, 5, 3); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", in, err, want)
		}
	}
}

func TestDescriptorChoices_OversubscribedRank_PrefersDescriptor(t *testing.T) {
	env := func(local int) *mtl.Env {
		return &mtl.Env{Env: progress.Env{Identity: bootstrap.Identity{Size: local, LocalSize: local}}}
	}
	few, many := env(1), env(cpu.ForRanks()+1)
	for _, c := range []struct {
		wait string
		env  *mtl.Env
		want []bool
	}{{"fd", few, []bool{true}}, {"poll", many, []bool{false}}, {"auto", few, []bool{false}}, {"auto", many, []bool{true, false}}} {
		if got := DescriptorChoices(c.wait, c.env); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.wait, got, c.want)
		}
	}
}

func TestAvailable_Library_LoadedOnlyIfNotFound(t *testing.T) {
	present := filepath.Join(t.TempDir(), "libthere.so")
	if err := os.WriteFile(present, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	loads := 0
	load := func() error {
		loads++
		return errGone
	}
	if v := (Library{present, time.Minute}).Available(t.Context(), nil, load, "install it"); v.Status != framework.StatusUsable || loads != 0 {
		t.Errorf("%+v after %d loads", v, loads)
	}
	if v := (Library{"libabsent.so.7", time.Minute}).Available(t.Context(), nil, load, "install it"); v.Status != framework.StatusUnavailable || loads != 1 || !strings.Contains(v.Hint, "install it") {
		t.Errorf("%+v after %d loads", v, loads)
	}
	if v := (Library{present, time.Minute}).Available(t.Context(), errGone, load, ""); v.Status != framework.StatusNotBuilt || loads != 1 {
		t.Errorf("%+v after %d loads", v, loads)
	}
}

func TestLoadLibrary_Hangs_NamesFile(t *testing.T) {
	release := make(chan struct{})
	late := make(chan struct{})
	l := Library{filepath.Join(t.TempDir(), "libhangs.so"), 20 * time.Millisecond}
	_, err := LoadLibrary(t.Context(), l, func(string) (int, error) {
		<-release
		close(late)
		return 0, errGone
	})
	if !errors.Is(err, trial.ErrHangs) || !strings.Contains(err.Error(), l.File+" was not loaded within 20ms") {
		t.Errorf("%v", err)
	}
	close(release)
	<-late
}
