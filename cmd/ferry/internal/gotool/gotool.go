// Package gotool runs the go command for commands that write modules, and finds ferry's own
// sources.
package gotool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/ferrympi/ferry/cmd/ferry/internal/version"
)

// GoVersion is the one that ferry's go.mod asks for.
const GoVersion = "1.26.0"

// A Go runs the go command in a module, and may complete its go.mod and go.sum.
type Go struct {
	Dir string
	// Added to the environment of this process.
	Env []string
}

// Run returns the standard output of the go command. The error has its standard error.
func (g Go) Run(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = g.Dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -mod=mod"))
	cmd.Env = append(cmd.Env, g.Env...)
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
