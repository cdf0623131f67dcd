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
  - {kind: btl, name: shm, import: btl/shm, priority: 30}
not_built:
  - {kind: pml, name: cm, reason: no MTL is compiled in, hint: use ob1}
plugins: []
select: {pml: [ob1, cm], btl: "^shm"}
params: {btl.shm.eager_limit: 4KiB, cid: {policy: lazy}}
`

func TestManifestIsReadInFull(t *testing.T) {
	got, err := ParseManifest("components.yaml", []byte(goodManifest))
	if err != nil {
		t.Fatal(err)
	}
	want := &Manifest{
		Components: []ManifestComponent{{"pml", "ob1", "pml/ob1", 20}, {"btl", "shm", "btl/shm", 30}},
		NotBuilt:   []framework.Verdict{{Kind: "pml", Name: "cm", Status: framework.StatusNotBuilt, Reason: "no MTL is compiled in", Hint: "use ob1"}},
		Select:     []Setting{{Name: "btl", Value: "^shm", Source: "components.yaml"}, {Name: "pml", Value: "ob1,cm", Source: "components.yaml"}},
		Params:     []Setting{{Name: "btl.shm.eager_limit", Value: "4KiB", Source: "components.yaml"}, {Name: "cid.policy", Value: "lazy", Source: "components.yaml"}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestBadManifestSaysWhere(t *testing.T) {
	const v = "version: 1\n"
	for text, says := range map[string]string{
		"":                    "version is <nil>",
		"version: 2":          "version is 2",
		"version: '1'":        "reads version 1",
		"version: [":          "line 1",
		"- a":                 "line 1",
		v + "component: []":   `unknown field "component"; the nearest known name is components`,
		v + "components: {}":  "components: want a list",
		v + "components: [a]": "components[0]: want a map",
		v + "components: [{kind: btl, name: x, import: y, prio: 1}]":                        `components[0]: unknown field "prio"; the nearest known name is priority`,
		v + "components: [{name: x, import: y, priority: 1}]":                               "components[0]: kind is missing",
		v + "components: [{kind: btl, name: '', import: y, priority: 1}]":                   "components[0]: name is missing",
		v + "components: [{kind: btl, name: 7, import: y, priority: 1}]":                    "components[0]: name 7: want text",
		v + "components: [{kind: btl, name: X, import: y, priority: 1}]":                    `components[0]: name "X"`,
		v + "components: [{kind: btl, name: x, priority: 1}]":                               "components[0]: import is missing",
		v + "components: [{kind: btl, name: x, import: ../y, priority: 1}]":                 `import "../y"`,
		v + "components: [{kind: btl, name: x, import: 'y\"', priority: 1}]":                `is no package path`,
		v + "components: [{kind: btl, name: x, import: y}]":                                 "components[0]: priority <nil>",
		v + "components: [{kind: btl, name: x, import: y, priority: high}]":                 "components[0]: priority high",
		v + "components: [{kind: select, name: x, import: y, priority: 1}]":                 `components[0]: kind "select"`,
		v + "not_built: [{kind: btl, name: x}]":                                             "not_built[0]: reason is missing",
		v + "not_built: [{kind: btl, name: x, reason: r, import: i}]":                       `not_built[0]: unknown field "import"`,
		v + "not_built: [{kind: btl, name: x, reason: r}, {kind: btl, name: x, reason: r}]": "not_built[1]: btl x is already in not_built[0]",
		v + "components: [{kind: btl, name: x, import: y, priority: 1}]\n" +
			"not_built: [{kind: btl, name: x, reason: r}]": "not_built[0]: btl x is already in components[0]",
		v + "plugins: [{kind: btl, name: acme}]": "plugins[0]: this version of ferry launches no plugins",
		v + "select: [a]":                        "select: want a map",
		v + "select: {bttl: x}":                  `unknown parameter "bttl"`,
		v + "select: {btl: shm}":                 `unknown btl component "shm"`,
		v + "select: {btl: 'a,^b'}":              "one ^ at the start",
		v + "select: {btl.shm.x: 1}":             "parameters belong under params",
		v + "params: 3":                          "params: want a map",
		v + "params: {a.b: }":                    "key params.a.b: it has no value",
		v + "params: {a: {b: 1}, a.b: 2}":        "a.b is set twice",
	} {
		_, err := ParseManifest("components.yaml", []byte(text))
		t.Run(says, func(t *testing.T) { wantError(t, err, "components.yaml", says) })
	}
}

func FuzzManifest(f *testing.F) {
	for _, s := range []string{goodManifest, "version: 1", "version: 1\nselect: {btl: '^'}", "version: 1\nplugins: ~", "[]",
		"version: 1\ncomponents: [{kind: config, name: x, import: y, priority: 1}]"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if _, err := ParseManifest("m", text); err != nil && !errors.Is(err, framework.ErrConfig) {
			t.Fatal(err)
		}
	})
}
