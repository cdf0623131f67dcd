package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/config"
	"github.com/google/go-cmp/cmp"
)

func TestGeneratedFileIsCurrent(t *testing.T) {
	output := filepath.Join(t.TempDir(), "components_gen.go")
	if err := generate("../../../components.yaml", output); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(output)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../components_gen.go")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(got)); d != "" {
		t.Errorf("components_gen.go does not follow from components.yaml: run `go generate ./components`: %s", d)
	}
}

func TestEveryLineOfTheManifestReachesTheCode(t *testing.T) {
	m, err := config.ParseManifest("x.yaml", []byte(`
version: 1
components:
  - {kind: pml, name: ob1, import: pml/ob1, priority: 20}
  - {kind: btl, name: acme_x, import: example.com/acme/btl, priority: -3}
  - {kind: btl, name: net, import: net, priority: 1, node: acme_x}
  - {kind: btla, name: cmex, import: other, priority: 1}
not_built:
  - {kind: mtl, name: ofi, reason: 'no "libfabric"'}
select: {pml: [ob1], btl: "^acme_x"}
params: {btl.acme_x.depth: 8}
`))
	if err != nil {
		t.Fatal(err)
	}
	got, err := render(m)
	if err != nil {
		t.Fatal(err)
	}
	want := `// Code generated from components.yaml by components/internal/gen; DO NOT EDIT.

package components

import (
	btl_acme_x "example.com/acme/btl"
	"github.com/ferrympi/ferry/framework"
	btl_net "github.com/ferrympi/ferry/net"
	btla_cmex "github.com/ferrympi/ferry/other"
	pml_ob1 "github.com/ferrympi/ferry/pml/ob1"
)

// Standard returns a new registry with every component that components.yaml
// names, and with its preferences.
func Standard() *framework.Registry {
	r := framework.NewRegistry()
	r.Register(pml_ob1.Component())
	r.SetPriority("pml", "ob1", 20)
	r.Register(btl_acme_x.Component())
	r.SetPriority("btl", "acme_x", -3)
	r.Register(btl_net.Component())
	r.SetPriority("btl", "net", 1)
	r.Register(btla_cmex.Component())
	r.SetPriority("btla", "cmex", 1)
	r.SetNode("btl", "net", "acme_x")
	r.NotBuilt("mtl", "ofi", "no \"libfabric\"", "")
	r.SetDefault("btl", "^acme_x")
	r.SetDefault("btl.acme_x.depth", "8")
	r.SetDefault("pml", "ob1")
	return r
}
`
	if d := cmp.Diff(want, string(got)); d != "" {
		t.Error(d)
	}
}

func TestBadManifestWritesNothing(t *testing.T) {
	dir := t.TempDir()
	manifest, output := filepath.Join(dir, "components.yaml"), filepath.Join(dir, "out.go")
	if err := os.WriteFile(manifest, []byte("version: 2"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := generate(manifest, output); err == nil || !strings.Contains(err.Error(), "components.yaml: version is 2") {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(output); !os.IsNotExist(err) {
		t.Errorf("the output exists: %v", err)
	}
}
