package component

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/cmd/ferry/internal/gotool"
)

// program is a user's own, with the one import and the one option.
const program = `package main

import (
	"context"
	"fmt"

	"github.com/ferrympi/ferry/mpi"
)

//go:generate ferry component register

func main() {
	ctx := context.Background()
	s, err := mpi.OpenSession(ctx, mpi.WithRegistry(Registry()), mpi.WithParam("btl", "self,dgram"))
	if err != nil {
		panic(err)
	}
	defer s.Close()
	fmt.Println("open")
}
`

func command(args ...string) error {
	cmd := Command()
	cmd.SetArgs(args)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	return cmd.Execute()
}

func TestRegister_UserProgram_HasComponentsOfManifest(t *testing.T) {
	dir, ferry := t.TempDir(), filepath.Join(mustGetwd(t), "../../../..")
	vendor := filepath.Join(ferry, "examples/vendor-btl")
	for name, text := range map[string]string{
		"go.mod":          "module mine\n\ngo " + gotool.GoVersion + "\n\n" + gotool.Replace("github.com/ferrympi/ferry", ferry) + "\n" + gotool.Replace("example.com/vendor-btl", vendor),
		"go.sum":          string(gotool.Sums(ferry, vendor)),
		"main.go":         program,
		"components.yaml": "version: 1\nstandard: true\ncomponents:\n  - {kind: btl, name: dgram, import: example.com/vendor-btl, priority: 1}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := command("register", filepath.Join(dir, "components.yaml"), "-o", filepath.Join(dir, "components_gen.go")); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(t.TempDir(), "mine")
	if _, err := (gotool.Go{Dir: dir}).Run(t.Context(), "build", "-o", binary); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), binary).CombinedOutput(); err != nil || string(out) != "open\n" {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestRegister_BadManifest_KeepsFile(t *testing.T) {
	dir := t.TempDir()
	manifest, output := filepath.Join(dir, "components.yaml"), filepath.Join(dir, "components_gen.go")
	for _, f := range []string{manifest, output} {
		if err := os.WriteFile(f, []byte("version: 2"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := command("register", manifest, "-o", output); err == nil || !strings.Contains(err.Error(), "components.yaml: version is 2") {
		t.Errorf("error %v", err)
	}
	if text, err := os.ReadFile(output); err != nil || string(text) != "version: 2" {
		t.Errorf("the output has changed: %s, %v", text, err)
	}
}

func mustGetwd(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
