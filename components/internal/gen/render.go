package main

import (
	"bytes"
	"fmt"
	"go/format"
	"strings"

	"github.com/ferrympi/ferry/config"
)

const module = "github.com/ferrympi/ferry"

// render returns the source of components_gen.go: one line per line of the
// manifest, in the same order.
func render(m *config.Manifest) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("// Code generated from components.yaml by components/internal/gen; DO NOT EDIT.\n\n")
	b.WriteString("package components\n\nimport (\n")
	fmt.Fprintf(&b, "%q\n", module+"/framework")
	for _, c := range m.Components {
		fmt.Fprintf(&b, "%s %q\n", alias(c), importPath(c.Import))
	}
	b.WriteString(")\n\n// Standard returns a new registry with every component that components.yaml\n")
	b.WriteString("// names, and with its preferences.\nfunc Standard() *framework.Registry {\nr := framework.NewRegistry()\n")
	for _, c := range m.Components {
		fmt.Fprintf(&b, "r.Register(%s.Component())\n", alias(c))
		// It panics if the component calls itself otherwise than the manifest.
		fmt.Fprintf(&b, "r.SetPriority(%q, %q, %d)\n", c.Kind, c.Name, *c.Priority)
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

// importPath resolves a path that is relative to the module of ferry. As in Go
// itself, only the first element of a full path has a dot.
func importPath(path string) string {
	if first, _, _ := strings.Cut(path, "/"); strings.Contains(first, ".") {
		return path
	}
	return module + "/" + path
}

// alias names an import after kind and component, as two kinds may have components
// of the same name.
func alias(c config.ManifestComponent) string { return string(c.Kind) + "_" + c.Name }
