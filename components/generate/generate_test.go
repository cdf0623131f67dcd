package generate

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ferrympi/ferry/components"
	"github.com/ferrympi/ferry/config"
	"github.com/ferrympi/ferry/framework"
)

func TestFile_Generated_IsCurrent(t *testing.T) {
	manifest, err := os.ReadFile("../../components.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want, err := File("../../components.yaml", manifest, nil, Package{Name: "components", Func: "Standard"})
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../components_gen.go")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(got)); d != "" {
		t.Errorf("components_gen.go does not follow from components.yaml: run `go generate ./components`: %s", d)
	}
}

func TestCode_EveryLineOfManifest_IsInCode(t *testing.T) {
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
`), nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Code(m, Package{Name: "components", Func: "Standard", From: "components.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	want := `// Code generated from components.yaml by ferry component register; DO NOT EDIT.

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

// Plugins are in the registry like compiled components.
func TestFile_PluginsOfManifest_AreInCode(t *testing.T) {
	text := "version: 1\nstandard: true\nplugins: [{kind: btl, name: acme, command: [/opt/acme, -v], sha256: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa, priority: 5, env: [ACME]}]\nselect: {btl: [self, acme]}\n"
	got, err := File("my/components.yaml", []byte(text), components.Standard(), Package{Name: "main", Func: "Registry"})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"github.com/ferrympi/ferry/plugin/host"`, `r.SetDefault("btl", "self,acme")`,
		`r.Register(host.Component(host.Entry{Kind: "btl", Name: "acme", Command: []string{"/opt/acme", "-v"}, SHA256: "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", Priority: 5, Env: []string{"ACME"}, Protocol: "", File: "components.yaml"}))`,
	} {
		if !strings.Contains(string(got), want) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
}

// Modules of users may have any name.
func TestFile_StandardManifest_BeginsWithStandardComponents(t *testing.T) {
	text := "version: 1\nstandard: true\ncomponents: [{kind: btl, name: acme, import: acme/btl, priority: 5}]\nselect: {btl: [self, acme]}\n"
	got, err := File("my/components.yaml", []byte(text), components.Standard(), Package{Name: "main", Func: "Registry"})
	if err != nil {
		t.Fatal(err)
	}
	want := `// Code generated from components.yaml by ferry component register; DO NOT EDIT.

package main

import (
	btl_acme "acme/btl"
	"github.com/ferrympi/ferry/components"
	"github.com/ferrympi/ferry/framework"
)

// Registry returns a new registry with every component that components.yaml
// names, and with its preferences.
func Registry() *framework.Registry {
	r := components.Standard()
	r.Register(btl_acme.Component())
	r.SetPriority("btl", "acme", 5)
	r.SetDefault("btl", "self,acme")
	return r
}
`
	if d := cmp.Diff(want, string(got)); d != "" {
		t.Error(d)
	}
}

func TestFile_NameOfStandardComponent_IsRefused(t *testing.T) {
	text := "version: 1\nstandard: true\ncomponents: [{kind: btl, name: tcp, import: acme/btl, priority: 5}]\n"
	_, err := File("c.yaml", []byte(text), components.Standard(), Package{Name: "main", Func: "Registry"})
	if !errors.Is(err, framework.ErrConfig) || !strings.Contains(err.Error(), "btl tcp is already in the standard components") {
		t.Error(err)
	}
	if _, err = File("c.yaml", []byte("version: 1\nstandard: true\n"), nil, Package{}); !errors.Is(err, framework.ErrConfig) {
		t.Errorf("without the standard components: %v", err)
	}
}
