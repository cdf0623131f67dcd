// Command gen makes components_gen.go from components.yaml. `go generate` runs
// it in the directory of package components. Unlike `ferry component register` it imports
// nothing that is generated.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/ferrympi/ferry/components/generate"
)

func main() {
	manifest := flag.String("manifest", "../components.yaml", "manifest to read")
	output := flag.String("o", "components_gen.go", "file to write")
	flag.Parse()
	if err := run(*manifest, *output); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run(manifest, output string) error {
	text, err := os.ReadFile(manifest)
	if err != nil {
		return err
	}
	code, err := generate.File(manifest, text, nil, generate.Package{Name: "components", Func: "Standard"})
	if err != nil {
		return err
	}
	return os.WriteFile(output, code, 0o644)
}
