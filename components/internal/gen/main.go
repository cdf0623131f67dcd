// Command gen makes components_gen.go from components.yaml. `go generate` runs
// it in the directory of package components.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ferrympi/ferry/config"
)

func main() {
	manifest := flag.String("manifest", "../components.yaml", "manifest to read")
	output := flag.String("o", "components_gen.go", "file to write")
	flag.Parse()
	if err := generate(*manifest, *output); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func generate(manifest, output string) error {
	text, err := os.ReadFile(manifest)
	if err != nil {
		return err
	}
	m, err := config.ParseManifest(filepath.Base(manifest), text)
	if err != nil {
		return err
	}
	code, err := render(m)
	if err != nil {
		return err
	}
	return os.WriteFile(output, code, 0o644)
}
