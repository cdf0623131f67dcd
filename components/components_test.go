package components

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/config"
	"github.com/ferrympi/ferry/framework"
)

func manifest(t *testing.T) *config.Manifest {
	t.Helper()
	text, err := os.ReadFile("../components.yaml")
	if err != nil {
		t.Fatal(err)
	}
	m, err := config.ParseManifest("components.yaml", text, nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestStandard_EqualsManifest(t *testing.T) {
	m, r := manifest(t), Standard()
	for _, c := range m.Components {
		got, ok := r.Lookup(c.Kind, c.Name)
		if !ok {
			t.Errorf("%s %s is missing", c.Kind, c.Name)
			continue
		}
		if info := got.Info(); info.Kind != c.Kind || info.Name != c.Name || info.Version == "" || info.Summary == "" {
			t.Errorf("%s %s calls itself %+v; version and summary are needed", c.Kind, c.Name, info)
		}
	}
	registered := 0
	for _, kind := range r.Kinds() {
		registered += len(r.Components(kind))
	}
	if registered != len(m.Components) {
		t.Errorf("%d components are registered; the manifest has %d", registered, len(m.Components))
	}
}

// Every name in not_built binds: a request for it is refused with its reason.
func TestStandard_ComponentNotBuilt_IsRefusedByName(t *testing.T) {
	r := Standard()
	for _, v := range manifest(t).NotBuilt {
		values, err := config.Load(r, config.Options{SiteFile: os.DevNull, UserFile: os.DevNull, Environ: []string{framework.EnvName(string(v.Kind)) + "=" + v.Name}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.SelectAll(context.Background(), values)
		if !errors.Is(err, framework.ErrConfig) || !strings.Contains(err.Error(), v.Reason) || !strings.Contains(err.Error(), v.Hint) {
			t.Errorf("%s=%s: %v", v.Kind, v.Name, err)
		}
	}
}

func TestStandard_Registries_AreIndependent(t *testing.T) {
	a, b := Standard(), Standard()
	a.NotBuilt("btl", "mine", "a test", "")
	b.NotBuilt("btl", "mine", "a test", "") // panics if the two share anything
}
