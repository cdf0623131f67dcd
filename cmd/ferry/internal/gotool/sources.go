package gotool

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"

	"github.com/ferrympi/ferry/cmd/ferry/internal/exit"
	"github.com/ferrympi/ferry/cmd/ferry/internal/version"
	"github.com/ferrympi/ferry/internal/trustedfile"
)

// Sources is a version of ferry that the go command can fetch, or a folder.
type Sources struct{ Version, Dir string }

// Find returns the sources in folder. If that is empty, it returns the released version of this
// program, or the folder of a development build. The caller compiles and runs that folder, so
// that Find returns an error if a user other than root and this one can change it.
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
	if v := version.ModuleVersion(); v != "" {
		return Sources{Version: v}, nil
	}
	for _, dir := range candidates() {
		if !holdsFerry(dir) {
			continue
		}
		if err := trusted(dir); err != nil {
			return Sources{}, err
		}
		return Sources{Dir: dir}, nil
	}
	return Sources{}, exit.Usagef("this ferry (%s) is no released version, and its sources are not found: --ferry names a folder with them", version.String())
}

// candidates returns folders that may have the sources of this program. The compiler recorded
// one, except with -trimpath, and the program may be in the folder bin of another.
func candidates() (dirs []string) {
	if _, file, _, _ := runtime.Caller(0); filepath.IsAbs(file) {
		dirs = append(dirs, filepath.Join(filepath.Dir(file), "../../../.."))
	}
	if program, err := os.Executable(); err == nil && filepath.Base(filepath.Dir(program)) == "bin" {
		dirs = append(dirs, filepath.Dir(filepath.Dir(program)))
	}
	return dirs
}

// trusted returns an error if another user can change the sources in a folder.
func trusted(dir string) error {
	err := trustedfile.CheckTree(dir)
	if refusal, ok := errors.AsType[*trustedfile.Error](err); ok {
		return exit.Usagef("ferry's sources in %s: %w: %s, or name a folder by --ferry", dir, err, refusal.Remedy)
	}
	return err
}

func holdsFerry(dir string) bool {
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	return err == nil && bytes.HasPrefix(mod, []byte("module "+version.Module+"\n"))
}
