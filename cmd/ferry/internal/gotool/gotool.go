// Package gotool runs the go command for commands that write modules, and knows where
// ferry's own sources are to be had.
package gotool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/ferrympi/ferry/cmd/ferry/internal/exit"
	"github.com/ferrympi/ferry/cmd/ferry/internal/version"
)

// GoVersion is the one that ferry's go.mod asks for.
const GoVersion = "1.26.0"

// A Go runs the go command in a module, whose go.mod and go.sum it may complete.
type Go struct{ Dir string }

// Run returns what the go command has written to standard output. The error has what it
// has written to standard error.
func (g Go) Run(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = g.Dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -mod=mod"))
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return nil, fmt.Errorf("no go command in PATH: this needs Go %s or later: %w", GoVersion, err)
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, bytes.TrimSpace(errs.Bytes()))
	}
	return out.Bytes(), nil
}

// Sources is where ferry comes from: a version that the go command can fetch, or a folder.
type Sources struct{ Version, Dir string }

// Find returns the sources in folder, or, if that is empty, those of this very program. A
// program that was built from a folder remembers it.
func Find(folder string) (Sources, error) {
	if folder != "" {
		dir, err := filepath.Abs(folder)
		if err != nil {
			return Sources{}, err
		}
		if !holdsFerry(dir) {
			return Sources{}, exit.Usagef("--ferry %s: no module %s there", folder, version.Module)
		}
		return Sources{Dir: dir}, nil
	}
	if v := version.Fetched(); v != "" {
		return Sources{Version: v}, nil
	}
	_, file, _, _ := runtime.Caller(0)
	dir := filepath.Join(filepath.Dir(file), "../../../..")
	if !filepath.IsAbs(file) || !holdsFerry(dir) {
		return Sources{}, exit.Usagef("this ferry (%s) is no released version, and the sources that it was built from are not there any more: --ferry names a folder with them", version.String())
	}
	return Sources{Dir: dir}, nil
}

func holdsFerry(dir string) bool {
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	return err == nil && bytes.HasPrefix(mod, []byte("module "+version.Module+"\n"))
}

// Require returns the lines of a go.mod that ask for these sources.
func (s Sources) Require() string {
	if s.Dir == "" {
		return fmt.Sprintf("require %s %s\n", version.Module, s.Version)
	}
	return Replace(version.Module, s.Dir)
}

// Replace returns the lines of a go.mod that take a module from a folder.
func Replace(module, dir string) string {
	return fmt.Sprintf("require %s v0.0.0\n\nreplace %s => %q\n", module, module, dir)
}

// Sums returns the checksums that the modules in folders know of their dependencies, which
// need not be asked for again.
func Sums(dirs ...string) (sums []byte) {
	for _, dir := range dirs {
		if b, err := os.ReadFile(filepath.Join(dir, "go.sum")); dir != "" && err == nil {
			sums = append(sums, b...)
		}
	}
	return sums
}
