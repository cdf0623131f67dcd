package config

import (
	"context"
	"fmt"
	"io/fs"
	"strings"

	"github.com/ferrympi/ferry/framework"
)

// ManifestVersion is the version of components.yaml that ParseManifest reads.
const ManifestVersion = 1

// Manifest is the contents of a components.yaml, the components of a program. A generator derives the code that registers them.
type Manifest struct {
	Version int
	// Adds the components to ferry's standard components.
	Standard   bool
	Components []ManifestComponent
	NotBuilt   []ManifestNotBuilt `yaml:"not_built"`
	Plugins    []Plugin
	// Selection lists by framework.
	Select map[string]any
	// Overrides of defaults of parameters.
	Params map[string]any

	// Settings of Select and Params, sorted by name.
	Defaults []Setting `yaml:"-"`
}

// ManifestComponent is a component to compile in.
type ManifestComponent struct {
	Kind framework.Kind
	Name string
	// Package path. Its function Component returns the component.
	Import   string
	Priority *int
	// Component of the same kind for the processes of a node. May be empty.
	Node string
}

// ManifestNotBuilt is a known component that is not compiled in.
type ManifestNotBuilt struct {
	Kind   framework.Kind
	Name   string
	Reason string
	Hint   string // May be empty.
}

// ParseManifest parses a components.yaml. name identifies it in messages. standard has the components that `standard: true` adds
// (components.Standard). It is nil for a file that cannot contain the key. Without `standard: true`, an import path without a dot in its first
// element is relative to the module of ferry.
//
// Errors match framework.ErrConfig. Those of syntax have the line, others the path of the entry. ParseManifest checks the fields, duplicates, and
// that selection lists are valid and name only components of the manifest. (*framework.Registry).Defaults checks the parameters under params in
// the program that has the components.
func ParseManifest(name string, text []byte, standard *framework.Registry) (*Manifest, error) {
	var m Manifest
	err := decode(text, &m)
	if err == nil {
		err = m.check(standard)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", framework.ErrConfig, name, err)
	}
	return &m, nil
}

// check checks the lists by a selection over stand-ins of the components.
func (m *Manifest) check(standard *framework.Registry) error {
	if m.Version != ManifestVersion {
		return fmt.Errorf("version is %d: this ferry reads version %d", m.Version, ManifestVersion)
	}
	r, seen := framework.NewRegistry(), map[string]string{}
	if m.Standard {
		if standard == nil {
			return fmt.Errorf("standard: true is for programs of others; ferry's own list names all components")
		}
		for _, kind := range standard.Kinds() {
			for _, c := range standard.Components(kind) {
				info := c.Info()
				seen[fmt.Sprintf("%s %s", kind, info.Name)] = "the standard components"
				r.Register(standIn{Kind: kind, Name: info.Name})
			}
		}
	}
	for i, c := range m.Components {
		path := fmt.Sprintf("components[%d]", i)
		if err := checkEntry(path, c.Kind, c.Name, seen); err != nil {
			return err
		}
		if !isImportPath(c.Import) {
			return fmt.Errorf("%s: import %q is not a package path", path, c.Import)
		}
		if c.Priority == nil {
			return fmt.Errorf("%s: priority is missing", path)
		}
		r.Register(standIn(c))
	}
	for i, p := range m.Plugins {
		path := fmt.Sprintf("plugins[%d]", i)
		if err := p.Check(); err != nil {
			return fmt.Errorf("%s: %s %s: %w", path, p.Kind, p.Name, err)
		}
		if err := checkEntry(path, p.Kind, p.Name, seen); err != nil {
			return err
		}
		r.Register(standIn{Kind: p.Kind, Name: p.Name})
	}
	for i, c := range m.Components {
		if _, ok := r.Lookup(c.Kind, c.Node); c.Node != "" && (!ok || c.Node == c.Name) {
			return fmt.Errorf("components[%d]: node %q is not another %s component of this file", i, c.Node, c.Kind)
		}
	}
	for i, v := range m.NotBuilt {
		path := fmt.Sprintf("not_built[%d]", i)
		if err := checkEntry(path, v.Kind, v.Name, seen); err != nil {
			return err
		}
		if v.Reason == "" {
			return fmt.Errorf("%s: reason is missing", path)
		}
		r.NotBuilt(v.Kind, v.Name, v.Reason, v.Hint)
	}
	flat, err := flatten(map[string]any{"select": m.Select, "params": m.Params})
	if err != nil {
		return err
	}
	m.Defaults = texts(flat).layer(framework.SourceManifest).settings()
	for _, s := range m.Defaults {
		if !strings.Contains(s.Name, ".") { // A selection list.
			r.SetDefault(s.Name, s.Value)
		}
	}
	values, err := r.Defaults()
	if err != nil {
		return err
	}
	_, err = r.SelectAll(context.Background(), values)
	return err
}

// checkEntry checks the kind and the name of the entry at path, and adds them to seen.
func checkEntry(path string, kind framework.Kind, name string, seen map[string]string) error {
	id := fmt.Sprintf("%s %s", kind, name)
	switch {
	case !framework.ValidName(string(kind)), !framework.ValidName(name):
		return fmt.Errorf("%s: kind %q, name %q: want a lower case letter, then letters, digits and '_'", path, kind, name)
	case !framework.ValidKind(string(kind)):
		return fmt.Errorf("%s: kind %q is a reserved word of configuration files", path, kind)
	case seen[id] != "":
		return fmt.Errorf("%s: %s is already in %s", path, id, seen[id])
	}
	seen[id] = path
	return nil
}

// isImportPath reports whether s is valid as an import in Go source.
func isImportPath(s string) bool {
	return fs.ValidPath(s) && s != "." && !strings.ContainsAny(s, "!\"#$%&'()*,:;<=>?[\\]^`{|} \uFFFD")
}

// standIn is a component with only a name.
type standIn ManifestComponent

func (s standIn) Info() framework.Info                         { return framework.Info{Kind: s.Kind, Name: s.Name} }
func (s standIn) Params() any                                  { return nil }
func (s standIn) Probe(context.Context, any) framework.Verdict { return framework.Usable() }
