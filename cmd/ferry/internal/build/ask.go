package build

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/ferrympi/ferry/cmd/ferry/internal/gotool"
)

// ask reads the Infos of the components from a program that it builds for this machine, which
// may differ from the target. The program writes them to a file, because packages may print.
func (b *builder) ask(ctx context.Context) error {
	if len(b.importPaths) == 0 {
		return nil
	}
	var imports, calls strings.Builder
	for i, path := range b.importPaths {
		fmt.Fprintf(&imports, "\tc%d %q\n", i, path)
		fmt.Fprintf(&calls, "c%d.Component().Info(), ", i)
	}
	ask := filepath.Join(b.moduleDir, "ask")
	if err := os.Mkdir(ask, 0o777); err != nil {
		return err
	}
	defer os.RemoveAll(ask)
	if err := b.write("ask/main.go", fmt.Sprintf(askFile, imports.String(), calls.String())); err != nil {
		return err
	}
	environ, err := hostEnviron(ctx, b.moduleDir)
	if err != nil {
		return err
	}
	program, answers := filepath.Join(ask, "ask"), filepath.Join(ask, "answers.json")
	if _, err := (gotool.Go{Dir: b.moduleDir, Env: environ}).Run(ctx, "build", "-buildvcs=false", "-o", program, "./ask"); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, program, answers)
	cmd.WaitDelay = waitDelay
	if out, err := cmd.CombinedOutput(); ctx.Err() != nil {
		return context.Cause(ctx)
	} else if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return fmt.Errorf("the program that lists the components: %w\n%s", err, bytes.TrimSpace(out))
	}
	text, err := os.ReadFile(answers)
	if err == nil {
		err = json.Unmarshal(text, &b.componentInfos)
	}
	if err != nil {
		return fmt.Errorf("the program that lists the components wrote no list (a package may end the process when it is initialized): %w", err)
	}
	return nil
}

// waitDelay limits the wait for the output of processes that a component has started.
const waitDelay = 5 * time.Second

// hostEnviron returns additions to the environment of the go command, for programs that run on
// this machine. If the user builds for another system, CC and the like are that system's, and
// stay out.
func hostEnviron(ctx context.Context, dir string) ([]string, error) {
	environ := []string{"GOOS=" + runtime.GOOS, "GOARCH=" + runtime.GOARCH, "GOAMD64=v1", "GOARM64=v8.0"}
	target, err := gotool.Go{Dir: dir}.Run(ctx, "env", "GOOS", "GOARCH")
	if err != nil {
		return nil, err
	}
	if string(target) != runtime.GOOS+"\n"+runtime.GOARCH+"\n" {
		for _, name := range []string{"CC", "CXX", "FC", "AR", "PKG_CONFIG", "CGO_ENABLED", "CGO_CFLAGS", "CGO_CPPFLAGS", "CGO_CXXFLAGS", "CGO_FFLAGS", "CGO_LDFLAGS"} {
			environ = append(environ, name+"=")
		}
	}
	return environ, nil
}

const askFile = `package main

import (
	"encoding/json"
	"fmt"
	"os"

%s
	"github.com/ferrympi/ferry/framework"
)

func main() {
	list, err := json.Marshal([]framework.Info{%s})
	if err == nil {
		err = os.WriteFile(os.Args[1], list, 0o600)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
`
