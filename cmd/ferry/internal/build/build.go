// Package build is `ferry build`: it makes the command ferry with components of other
// modules compiled in.
package build

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ferrympi/ferry/cmd/ferry/internal/exit"
	"github.com/ferrympi/ferry/cmd/ferry/internal/gotool"
	"github.com/ferrympi/ferry/cmd/ferry/internal/version"
	"github.com/ferrympi/ferry/components"
	"github.com/ferrympi/ferry/components/generate"
	"github.com/ferrympi/ferry/framework"
)

const long = `Build a ferry that has components of other modules besides its own. Each --with
names a package whose function Component makes a component: a package path with
a version, which the go command fetches, or a folder, which begins with . or /.

The new command has the version of this one. What is written to build it (a
module with components.yaml, and a main package of ten lines) goes afterwards,
unless --keep names a folder for it. Ranks of a job need the components too:
see ferry component register for programs of your own.`

// Command returns the command.
func Command() *cobra.Command {
	var o Options
	cmd := &cobra.Command{
		Use:     "build --with PACKAGE[@VERSION]|DIR... -o BINARY",
		Short:   "Build a ferry with components of other modules",
		Long:    long,
		Example: "  ferry build --with example.com/vendor/udp@v1.2.0 --with ./mine -o myferry",
		Args:    cobra.NoArgs,
	}
	f := cmd.Flags()
	f.StringArrayVar(&o.With, "with", nil, "compile in a component: `PACKAGE[@VERSION]` or a folder; may be repeated")
	f.StringVarP(&o.Output, "output", "o", "", "the `BINARY` to write")
	f.StringVar(&o.Keep, "keep", "", "leave the module in `DIR`, which is made")
	f.StringVar(&o.Ferry, "ferry", "", "take ferry's sources from `DIR`, in place of this ferry's version")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if len(o.With) == 0 || o.Output == "" {
			return exit.Usagef("want --with and -o")
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), exit.Signals()...)
		defer stop()
		_, err := Build(ctx, o)
		return err
	}
	return cmd
}

// Options is what to build.
type Options struct {
	With   []string // packages with versions, and folders
	Output string
	Keep   string // the folder for the module; empty: it goes
	Ferry  string // the folder of ferry's sources; empty: those of this program
}

type builder struct {
	Options
	sources gotool.Sources

	dir string
	gotool.Go
	packages []string
	infos    []framework.Info
}

// Build makes a ferry that has other components besides its own, and returns who they are.
func Build(ctx context.Context, o Options) (infos []framework.Info, err error) {
	b := builder{Options: o}
	if b.sources, err = gotool.Find(o.Ferry); err != nil {
		return nil, err
	}
	if b.Output, err = filepath.Abs(b.Output); err != nil {
		return nil, err
	}
	if b.Keep == "" {
		if b.dir, err = os.MkdirTemp("", "ferry-build-"); err != nil {
			return nil, err
		}
		defer os.RemoveAll(b.dir)
	} else if b.dir, err = b.Keep, os.Mkdir(b.Keep, 0o777); err != nil {
		return nil, err
	}
	b.Go = gotool.Go{Dir: b.dir}
	err = b.build(ctx)
	return b.infos, err
}

func (b *builder) build(ctx context.Context) error {
	if err := b.module(ctx); err != nil {
		return err
	}
	if err := b.manifest(ctx); err != nil {
		return err
	}
	if err := b.write("main.go", mainFile); err != nil {
		return err
	}
	args := []string{"build", "-buildvcs=false", "-o", b.Output}
	if commit := version.Commit(); commit != "" && b.sources.Dir != "" {
		args = append(args, "-ldflags", "-X "+version.Module+"/cmd/ferry/internal/version.commit="+commit)
	}
	_, err := b.Run(ctx, append(args, ".")...)
	return err
}

func (b *builder) write(name, text string) error {
	return os.WriteFile(filepath.Join(b.dir, name), []byte(text), 0o666)
}

// folder says where the package in a folder is from.
type folder struct {
	ImportPath string
	Module     *struct{ Path, Dir string }
}

// module writes go.mod, and has the go command fetch what is not in a folder.
func (b *builder) module(ctx context.Context) error {
	mod := "module ferry_build\n\ngo " + gotool.GoVersion + "\n\n" + b.sources.Require()
	from, taken := []string{b.sources.Dir}, map[string]bool{}
	var fetch []string
	for _, with := range b.With {
		if !strings.HasPrefix(with, ".") && !filepath.IsAbs(with) {
			path, v, _ := strings.Cut(with, "@")
			b.packages = append(b.packages, path)
			fetch = append(fetch, path+"@"+cmp.Or(v, "latest"))
			continue
		}
		text, err := gotool.Go{Dir: with}.Run(ctx, "list", "-json=ImportPath,Module", ".")
		var f folder
		if err == nil {
			err = json.Unmarshal(text, &f)
		}
		if err == nil && f.Module == nil {
			err = exit.Usagef("the folder belongs to no module")
		}
		if err != nil {
			return fmt.Errorf("--with %s: %w", with, err)
		}
		b.packages = append(b.packages, f.ImportPath)
		if f.Module.Path != version.Module && !taken[f.Module.Path] {
			taken[f.Module.Path] = true
			mod += "\n" + gotool.Replace(f.Module.Path, f.Module.Dir)
			from = append(from, f.Module.Dir)
		}
	}
	if err := b.write("go.mod", mod); err != nil {
		return err
	}
	if err := b.write("go.sum", string(gotool.Sums(from...))); err != nil {
		return err
	}
	for _, path := range fetch {
		if _, err := b.Run(ctx, "get", path); err != nil {
			return err
		}
	}
	return nil
}

// manifest asks the components who they are, and writes components.yaml and the registry.
func (b *builder) manifest(ctx context.Context) error {
	var imports, calls strings.Builder
	for i, path := range b.packages {
		fmt.Fprintf(&imports, "\tc%d %q\n", i, path)
		fmt.Fprintf(&calls, "c%d.Component().Info(), ", i)
	}
	ask := filepath.Join(b.dir, "ask")
	if err := os.Mkdir(ask, 0o777); err != nil {
		return err
	}
	defer os.RemoveAll(ask)
	if err := b.write("ask/main.go", fmt.Sprintf(askFile, imports.String(), calls.String())); err != nil {
		return err
	}
	text, err := b.Run(ctx, "run", "-buildvcs=false", "./ask")
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &b.infos); err != nil {
		return fmt.Errorf("asking the components for their names: %w", err)
	}
	manifest := "# Made by ferry build.\nversion: 1\nstandard: true\n\ncomponents:\n"
	for i, info := range b.infos {
		manifest += fmt.Sprintf("  - {kind: %s, name: %s, import: %q, priority: %d}\n", info.Kind, info.Name, b.packages[i], info.Priority)
	}
	if err := b.write("components.yaml", manifest); err != nil {
		return err
	}
	code, err := generate.File("components.yaml", []byte(manifest), components.Standard(), generate.Package{Name: "main", Func: "Registry"})
	if err != nil {
		return err
	}
	return b.write("components_gen.go", string(code))
}

const askFile = `package main

import (
	"encoding/json"
	"os"

%s
	"github.com/ferrympi/ferry/framework"
)

func main() {
	if json.NewEncoder(os.Stdout).Encode([]framework.Info{%s}) != nil {
		os.Exit(1)
	}
}
`

const mainFile = `// A ferry with the components of components.yaml, made by ferry build.
package main

import (
	"os"

	"github.com/ferrympi/ferry/cmd/ferry/command"
)

func main() { os.Exit(command.Main(Registry())) }
`
