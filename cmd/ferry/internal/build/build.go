// Package build is `ferry build`: it makes the command ferry with components of other
// modules compiled in.
package build

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ferrympi/ferry/cmd/ferry/internal/exit"
	"github.com/ferrympi/ferry/cmd/ferry/internal/gotool"
	"github.com/ferrympi/ferry/cmd/ferry/internal/settings"
	"github.com/ferrympi/ferry/cmd/ferry/internal/version"
	"github.com/ferrympi/ferry/components"
	"github.com/ferrympi/ferry/components/generate"
	"github.com/ferrympi/ferry/config"
	"github.com/ferrympi/ferry/framework"
)

const long = `Build a ferry that has components of other modules besides its own. Each --with
names a package whose function Component makes a component: a package path with
a version, which the go command fetches, or a folder, which begins with . or /.
Each --plugin names the program of a plugin, which the new command starts. With
its SHA-256 behind it (sha256sum tells it) no other file is started.

The new command has the version of this one. What is written to build it (a
module with components.yaml, and a main package of ten lines) goes afterwards,
unless --keep names a folder for it.

Ranks of a job need the components too. --program builds a program of yours in
place of a ferry, as it is: where it opens sessions without a registry of its
own, they have the components. Programs that are to have them wherever they are
built say so themselves, as ferry component register describes.`

// Command returns the command.
func Command() *cobra.Command {
	var o Options
	cmd := &cobra.Command{
		Use:     "build [--with PACKAGE[@VERSION]|DIR]... [--plugin NAME=FILE[@sha256:HEX]]... -o BINARY",
		Short:   "Build a ferry, or a program, with components of other modules",
		Long:    long,
		Example: "  ferry build --with example.com/vendor/udp@v1.2.0 --with ./mine -o myferry\n  ferry build --with ./mine --program ./solver -o solver-mine",
		Args:    cobra.NoArgs,
	}
	f := cmd.Flags()
	f.StringArrayVar(&o.WithPackages, "with", nil, "compile in a component: `PACKAGE[@VERSION]` or a folder; may be repeated")
	f.StringArrayVar(&o.PluginFiles, "plugin", nil, "have a plugin: `NAME=FILE[@sha256:HEX]`, the name of the transport and its program; may be repeated")
	f.StringVar(&o.Protocol, "protocol", "", "the control protocol of the plugins: `go-plugin|ferry`; go-plugin if it is not given")
	f.StringVar(&o.MainPackage, "program", "", "build the main package `PACKAGE[@VERSION]|DIR` in place of a ferry")
	f.StringVarP(&o.OutputPath, "output", "o", "", "the `BINARY` to write")
	f.StringVar(&o.KeepDir, "keep", "", "leave the module in `DIR`, which is made")
	f.StringVar(&o.FerryDir, "ferry", "", "take ferry's sources from `DIR`, in place of this ferry's version")
	settings.Complete(cmd, map[string]cobra.CompletionFunc{"protocol": settings.OneOf("go-plugin", "ferry"), "keep": settings.Folder, "ferry": settings.Folder})
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch isEmpty := len(o.WithPackages)+len(o.PluginFiles) == 0; {
		case isEmpty && o.OutputPath == "":
			return exit.Usagef("no component and no output: give --with MODULE or --plugin NAME=FILE, and -o FILE")
		case isEmpty:
			return exit.Usagef("no component: give --with MODULE or --plugin NAME=FILE")
		case o.OutputPath == "":
			return exit.Usagef("no output: give -o FILE")
		}
		ctx, stop := exit.NotifyContext(cmd.Context(), exit.Signals()...)
		defer stop()
		_, err := Build(ctx, o)
		return err
	}
	return cmd
}

// Options are the parameters of Build.
type Options struct {
	// Packages with versions, and folders.
	WithPackages []string
	// NAME=FILE, or NAME=FILE@sha256:HEX.
	PluginFiles []string
	// In the form of WithPackages, or empty for a ferry.
	MainPackage string
	OutputPath  string
	// For the module, or empty for a temporary folder.
	KeepDir string
	// With ferry's sources, or empty for those of this program.
	FerryDir string

	// Protocol of all plugins, as in config.Plugin.
	Protocol string
}

type builder struct {
	Options
	sources gotool.Sources

	moduleDir string
	gotool.Go
	importPaths    []string
	mainImportPath string
	componentInfos []framework.Info
}

// Build builds a ferry, or a program, with further components, and returns their descriptions.
func Build(ctx context.Context, o Options) (infos []framework.Info, err error) {
	b := builder{Options: o}
	if b.sources, err = gotool.Find(o.FerryDir); err != nil {
		return nil, err
	}
	if b.OutputPath, err = filepath.Abs(b.OutputPath); err != nil {
		return nil, err
	}
	if b.KeepDir == "" {
		if b.moduleDir, err = os.MkdirTemp("", "ferry-build-"); err != nil {
			return nil, err
		}
		defer os.RemoveAll(b.moduleDir)
	} else if b.moduleDir, err = b.KeepDir, os.Mkdir(b.KeepDir, 0o777); err != nil {
		return nil, err
	}
	b.Go = gotool.Go{Dir: b.moduleDir}
	err = b.build(ctx)
	return b.componentInfos, err
}

func (b *builder) build(ctx context.Context) error {
	if err := b.module(ctx); err != nil {
		return err
	}
	if err := b.manifest(ctx); err != nil {
		return err
	}
	if b.MainPackage == "" {
		if err := b.write("main.go", mainFile); err != nil {
			return err
		}
	}
	args := []string{"build", "-buildvcs=false", "-o", b.OutputPath}
	if commit := version.Commit(); commit != "" && b.sources.Dir != "" {
		args = append(args, "-ldflags", "-X "+version.Module+"/cmd/ferry/internal/version.commit="+commit)
	}
	if b.MainPackage != "" {
		args = append(args, "-trimpath") // The build cache then also serves the next copy of the sources.
	}
	_, err := b.Run(ctx, append(args, cmp.Or(b.mainImportPath, "."))...)
	return err
}

func (b *builder) write(name, text string) error {
	return os.WriteFile(filepath.Join(b.moduleDir, name), []byte(text), 0o666)
}

// folder is the package in a folder, with its module.
type folder struct {
	ImportPath string
	Module     *struct{ Path, Dir string }
}

// module writes go.mod and go.sum, and fetches the packages that are not in folders.
func (b *builder) module(ctx context.Context) error {
	if b.MainPackage != "" {
		if err := b.copySources(ctx); err != nil {
			return fmt.Errorf("a copy of ferry's sources: %w", err)
		}
	}
	mod := "module ferry_build\n\ngo " + gotool.GoVersion + "\n\n" + b.sources.Require()
	from, taken := []string{b.sources.Dir}, map[string]bool{}
	own := directives{replacementByModule: map[string]replacement{}}
	var fetch []string
	wanted := b.WithPackages
	if b.MainPackage != "" {
		wanted = append(slices.Clone(wanted), b.MainPackage)
	}
	for _, with := range wanted {
		if !strings.HasPrefix(with, ".") && !filepath.IsAbs(with) {
			path, v, _ := strings.Cut(with, "@")
			b.importPaths = append(b.importPaths, path)
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
			return fmt.Errorf("%s: %w", with, err)
		}
		b.importPaths = append(b.importPaths, f.ImportPath)
		if f.Module.Path != version.Module && !taken[f.Module.Path] {
			taken[f.Module.Path] = true
			mod += "\n" + gotool.Replace(f.Module.Path, f.Module.Dir)
			from = append(from, f.Module.Dir)
			if err := own.carry(ctx, f.Module.Path, f.Module.Dir); err != nil {
				return err
			}
		}
	}
	mod += own.lines(taken)
	if last := len(b.importPaths) - 1; b.MainPackage != "" {
		b.mainImportPath, b.importPaths = b.importPaths[last], b.importPaths[:last]
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

// pinned separates a plugin's file from its required SHA-256.
const pinned = "@sha256:"

// manifest writes components.yaml and the registry.
func (b *builder) manifest(ctx context.Context) error {
	if err := b.ask(ctx); err != nil {
		return err
	}
	manifest := "# Made by ferry build.\nversion: 1\nstandard: true\n"
	if len(b.componentInfos) > 0 {
		manifest += "\ncomponents:\n"
	}
	for i, info := range b.componentInfos {
		manifest += fmt.Sprintf("  - {kind: %s, name: %s, import: %q, priority: %d}\n", info.Kind, info.Name, b.importPaths[i], info.Priority)
	}
	if len(b.PluginFiles) > 0 {
		manifest += "\nplugins:\n"
	}
	for _, p := range b.PluginFiles {
		name, file, ok := strings.Cut(p, "=")
		if !ok {
			return exit.Usagef("--plugin %s: want NAME=FILE, or NAME=FILE@sha256:HEX", p)
		}
		var sum string
		if i := strings.LastIndex(file, pinned); i >= 0 {
			if file, sum = file[:i], file[i+len(pinned):]; sum == "" {
				return exit.Usagef("--plugin %s: no digest after %s", p, pinned)
			}
		}
		file, err := filepath.Abs(file)
		if err != nil {
			return err
		}
		e := config.Plugin{Kind: framework.BTL, Name: name, Command: []string{file}, SHA256: sum, Protocol: b.Protocol}
		if err := e.Check(); err != nil {
			return exit.Usagef("--plugin %s: %w", p, err)
		}
		manifest += fmt.Sprintf("  - {kind: btl, name: %q, command: [%q], sha256: %q, protocol: %q}\n", e.Name, file, e.SHA256, e.Protocol)
	}
	if err := b.write("components.yaml", manifest); err != nil {
		return err
	}
	p := generate.Package{Name: "main", Func: "Registry"}
	if b.MainPackage != "" {
		p = generate.Package{Name: "components", Func: "Standard"}
	}
	code, err := generate.File("components.yaml", []byte(manifest), components.Standard(), p)
	if err != nil {
		return err
	}
	if b.MainPackage != "" {
		return b.extend(code)
	}
	return b.write("components_gen.go", string(code))
}

const mainFile = `// A ferry with the components of components.yaml, made by ferry build.
package main

import (
	"os"

	"github.com/ferrympi/ferry/cmd/ferry/command"
)

func main() { os.Exit(command.Main(Registry())) }
`
