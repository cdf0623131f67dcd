// Package generate writes Go code for a manifest (config.ParseManifest): a function that returns a registry of
// the manifest's components. It generates ferry's own list, and those of other programs
// (`ferry component register`, `ferry build`).
//
// It imports package config only, and writes no files.
package generate

import (
	"bytes"
	"fmt"
	"go/format"
	"path/filepath"
	"strings"

	"github.com/ferrympi/ferry/config"
	"github.com/ferrympi/ferry/framework"
)

const module = "github.com/ferrympi/ferry"

// Package has the names in the generated code.
type Package struct {
	Name string // of the package
	// Function without parameters that returns a registry.
	Func string
	From string // the manifest's file name, for comments
}

// File returns the code for the manifest in a file. standard is config.ParseManifest's.
func File(name string, text []byte, standard *framework.Registry, p Package) ([]byte, error) {
	p.From = filepath.Base(name)
	m, err := config.ParseManifest(p.From, text, standard)
	if err != nil {
		return nil, err
	}
	return Code(m, p)
}

// Code returns the source of a file: one line per line of the manifest, in the same order.
func Code(m *config.Manifest, p Package) ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "// Code generated from %s by ferry component register; DO NOT EDIT.\n\n", p.From)
	fmt.Fprintf(&b, "package %s\n\nimport (\n", p.Name)
	start := "framework.NewRegistry()"
	if m.Standard {
		start = "components.Standard()"
		fmt.Fprintf(&b, "%q\n", module+"/components")
	}
	fmt.Fprintf(&b, "%q\n", module+"/framework")
	for _, c := range m.Components {
		fmt.Fprintf(&b, "%s %q\n", alias(c), importPath(m, c.Import))
	}
	if len(m.Plugins) > 0 {
		fmt.Fprintf(&b, "%q\n", module+"/plugin/host")
	}
	fmt.Fprintf(&b, ")\n\n// %s returns a new registry with every component that %s\n", p.Func, p.From)
	fmt.Fprintf(&b, "// names, and with its preferences.\nfunc %s() *framework.Registry {\nr := %s\n", p.Func, start)
	for _, c := range m.Components {
		fmt.Fprintf(&b, "r.Register(%s.Component())\n", alias(c))
		// It panics if the component calls itself otherwise than the manifest.
		fmt.Fprintf(&b, "r.SetPriority(%q, %q, %d)\n", c.Kind, c.Name, *c.Priority)
	}
	for _, e := range m.Plugins {
		fmt.Fprintf(&b, "r.Register(host.Component(host.Entry{Kind: %q, Name: %q, Command: %#v, SHA256: %q, Priority: %d, Env: %#v, Protocol: %q, File: %q}))\n",
			e.Kind, e.Name, e.Command, e.SHA256, e.Priority, e.Env, e.Protocol, p.From)
	}
	for _, c := range m.Components {
		if c.Node != "" {
			fmt.Fprintf(&b, "r.SetNode(%q, %q, %q)\n", c.Kind, c.Name, c.Node)
		}
	}
	for _, v := range m.NotBuilt {
		fmt.Fprintf(&b, "r.NotBuilt(%q, %q, %q, %q)\n", v.Kind, v.Name, v.Reason, v.Hint)
	}
	for _, s := range m.Defaults {
		fmt.Fprintf(&b, "r.SetDefault(%q, %q)\n", s.Name, s.Value)
	}
	b.WriteString("return r\n}\n")
	return format.Source(b.Bytes())
}

// importPath resolves a path that is relative to the module of ferry. As in Go, the first element of a full path
// has a dot. In a manifest that adds to the standard components, all paths are full, because modules of users
// may have any path.
func importPath(m *config.Manifest, path string) string {
	if first, _, _ := strings.Cut(path, "/"); m.Standard || strings.Contains(first, ".") {
		return path
	}
	return module + "/" + path
}

// alias names an import after kind and component, as two kinds may have components
// of the same name.
func alias(c config.ManifestComponent) string { return string(c.Kind) + "_" + c.Name }
