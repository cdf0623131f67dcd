package config

import (
	"errors"
	"testing"

	"github.com/ferrympi/ferry/framework"
	"github.com/google/go-cmp/cmp"
)

const goodManifest = `
version: 1
components:
  - {kind: pml, name: ob1, import: pml/ob1, priority: 20}
  - {kind: btl, name: shm, import: btl/shm, priority: 30, node: self}
  - {kind: btl, name: self, import: btl/self, priority: 1}
not_built:
  - {kind: pml, name: cm, reason: no MTL is compiled in, hint: use ob1}
plugins: []
select: {pml: [ob1, cm], btl: "^shm"}
params: {btl.shm.eager_limit: 4KiB, cid: {policy: lazy}}
`

func TestParseManifest_AllFields_AreParsed(t *testing.T) {
	got, err := ParseManifest("components.yaml", []byte(goodManifest), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := &Manifest{
		Version:    1,
		Components: []ManifestComponent{{Kind: "pml", Name: "ob1", Import: "pml/ob1", Priority: new(20)}, {"btl", "shm", "btl/shm", new(30), "self"}, {Kind: "btl", Name: "self", Import: "btl/self", Priority: new(1)}},
		NotBuilt:   []ManifestNotBuilt{{"pml", "cm", "no MTL is compiled in", "use ob1"}},
		Defaults: []Setting{
			{Name: "btl", Value: "^shm", Source: "components.yaml"}, {Name: "btl.shm.eager_limit", Value: "4KiB", Source: "components.yaml"},
			{Name: "cid.policy", Value: "lazy", Source: "components.yaml"}, {Name: "pml", Value: "ob1,cm", Source: "components.yaml"},
		},
	}
	got.Plugins, got.Select, got.Params = nil, nil, nil // as they are in the text
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestParseManifest_Invalid_NamesPlace(t *testing.T) {
	const v = "version: 1\n"
	for text, says := range map[string]string{
		"":                    "version is 0",
		"version: 2":          "version is 2",
		"version: '1'":        "line 1",
		"version: [":          "line 1",
		"- a":                 "line 1",
		v + "component: []":   "line 2: field component not found",
		v + "components: {}":  "line 2: cannot unmarshal !!map",
		v + "components: [a]": "line 2: cannot unmarshal !!str `a`",
		v + "components: [{kind: btl, name: x, import: y, prio: 1}]":                        "line 2: field prio not found",
		v + "components: [{name: x, import: y, priority: 1}]":                               `components[0]: kind ""`,
		v + "components: [{kind: btl, name: '', import: y, priority: 1}]":                   `components[0]: kind "btl", name ""`,
		v + "components: [{kind: btl, name: 7, import: y, priority: 1}]":                    `components[0]: kind "btl", name "7"`,
		v + "components: [{kind: btl, name: X, import: y, priority: 1}]":                    `components[0]: kind "btl", name "X"`,
		v + "components: [{kind: btl, name: x, priority: 1}]":                               `components[0]: import ""`,
		v + "components: [{kind: btl, name: x, import: ../y, priority: 1}]":                 `import "../y"`,
		v + "components: [{kind: btl, name: x, import: 'y\"', priority: 1}]":                `is not a package path`,
		v + "components: [{kind: btl, name: x, import: y, priority: 1, node: z}]":           `components[0]: node "z" is not another btl component of this file`,
		v + "components: [{kind: btl, name: x, import: y}]":                                 "components[0]: priority is missing",
		v + "components: [{kind: btl, name: x, import: y, priority: high}]":                 "line 2: cannot unmarshal !!str `high` into int",
		v + "components: [{kind: select, name: x, import: y, priority: 1}]":                 `components[0]: kind "select"`,
		v + "not_built: [{kind: btl, name: x}]":                                             "not_built[0]: reason is missing",
		v + "not_built: [{kind: btl, name: x, reason: r, import: i}]":                       "line 2: field import not found",
		v + "not_built: [{kind: btl, name: x, reason: r}, {kind: btl, name: x, reason: r}]": "not_built[1]: btl x is already in not_built[0]",
		v + "components: [{kind: btl, name: x, import: y, priority: 1}]\n" +
			"not_built: [{kind: btl, name: x, reason: r}]": "not_built[0]: btl x is already in components[0]",
		v + "plugins: [{kind: btl, name: acme}]":                                                                                  "plugins[0]: btl acme: command []: want an absolute path",
		v + "plugins: [{kind: mtl, name: acme, command: [/x]}]":                                                                   "plugins[0]: mtl acme: it works on users' buffers",
		v + "plugins: [{kind: btl, name: acme, command: [/x], size: 1}]":                                                          "field size not found",
		v + "components: [{kind: btl, name: acme, import: acme, priority: 1}]\nplugins: [{kind: btl, name: acme, command: [/x]}]": "plugins[0]: btl acme is already in components[0]",
		v + "select: [a]":                 "line 2: cannot unmarshal !!seq",
		v + "select: {bttl: x}":           `unknown parameter "bttl"`,
		v + "select: {btl: shm}":          `unknown btl component "shm"`,
		v + "select: {btl: 'a,^b'}":       "one ^ at the start",
		v + "select: {btl.shm.x: 1}":      "parameters belong under params",
		v + "params: 3":                   "line 2: cannot unmarshal !!int `3`",
		v + "params: {a.b: }":             "key params.a.b: it has no value",
		v + "params: {a: {b: 1}, a.b: 2}": "a.b is set twice",
		v + "--- {}":                      "line 2: a second YAML document",
		v + "---\n[":                      "line 3",
	} {
		_, err := ParseManifest("components.yaml", []byte(text), nil)
		t.Run(says, func(t *testing.T) { wantError(t, err, "components.yaml", says) })
	}
}

func FuzzManifest(f *testing.F) {
	for _, s := range []string{goodManifest, "version: 1", "version: 1\nselect: {btl: '^'}", "version: 1\nplugins: ~", "[]",
		"version: 1\ncomponents: [{kind: config, name: x, import: y, priority: 1}]"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if _, err := ParseManifest("m", text, nil); err != nil && !errors.Is(err, framework.ErrConfig) {
			t.Fatal(err)
		}
	})
}
