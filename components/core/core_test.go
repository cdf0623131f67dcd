package core_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/components/core"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/progress"
)

func TestRegister_Twice_AddsOnce(t *testing.T) {
	r := framework.NewRegistry()
	core.Register(r)
	core.Register(r)
	v, err := r.Defaults()
	if err != nil {
		t.Fatal(err)
	}
	var s core.Session
	if err := v.Decode("session", &s); err != nil {
		t.Fatal(err)
	}
	if s.Linger != 5*time.Second || len(s.Report) != 0 {
		t.Errorf("defaults %+v", s)
	}
}

func TestProgressOptions_SpinIsAuto_LeavesItToTheEngine(t *testing.T) {
	o, err := core.Progress{Spin: "auto", Yield: "auto"}.Options()
	if err != nil || o.Spin != 0 || o.Yield != progress.DefaultYield {
		t.Errorf("%+v, %v", o, err)
	}
}

func TestProgressOptions_ZeroAndInvalidDurations_AreHandled(t *testing.T) {
	o, err := core.Progress{Spin: "3us", Yield: "0s"}.Options()
	if err != nil || o.Spin != 3*time.Microsecond || o.Yield != 1 {
		t.Errorf("%v, %v: 0 must not become the engine's default", o, err)
	}
	for _, bad := range []string{"", "fast", "-1us", "5"} {
		if _, err := (core.Progress{Spin: bad, Yield: "auto"}).Options(); !errors.Is(err, framework.ErrConfig) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestCheck_InvalidDuration_NamesParameterAndSource(t *testing.T) {
	r := framework.NewRegistry()
	core.Register(r)
	good, err := r.Defaults()
	if err != nil {
		t.Fatal(err)
	}
	if err := core.Check(r, good); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"progress.spin", "progress.yield"} {
		bad, err := good.With("test", map[string]string{name: "abc"})
		if err != nil {
			t.Fatal(err)
		}
		if err := core.Check(r, bad); !errors.Is(err, framework.ErrConfig) || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "(test)") {
			t.Errorf("%s=abc: %v", name, err)
		}
	}
}
