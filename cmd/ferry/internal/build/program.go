package build

import (
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/ferrympi/ferry/cmd/ferry/internal/gotool"
	"github.com/ferrympi/ferry/cmd/ferry/internal/version"
)

// A program without a registry of its own uses components.Standard. To add components without a change of
// the program, it is built over a copy of ferry's sources with an extended components.Standard.

// copySources copies ferry's sources and makes them those of the module.
func (b *builder) copySources(ctx context.Context) error {
	from := b.sources.Dir
	if from == "" {
		text, err := gotool.Go{Dir: b.moduleDir}.Run(ctx, "mod", "download", "-json", version.Module+"@"+b.sources.Version)
		if err != nil {
			return err
		}
		var fetched struct{ Dir string }
		if err := json.Unmarshal(text, &fetched); err != nil {
			return err
		}
		from = fetched.Dir
	}
	to := filepath.Join(b.moduleDir, "ferry")
	b.sources = gotool.Sources{Dir: to}
	return filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path, from)
		switch {
		case e.IsDir() && (name == "/.git" || name == "/bin" || name == "/docs" || e.Name() == "testdata"):
			return filepath.SkipDir
		case e.IsDir():
			return os.Mkdir(to+name, 0o777)
		case !e.Type().IsRegular() || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(to+name, text, 0o666)
	})
}

// extend replaces components.Standard of the copy by the function in code, which adds components to the
// standard ones.
func (b *builder) extend(code []byte) error {
	dir := filepath.Join(b.sources.Dir, "components")
	own := filepath.Join(dir, "components_gen.go")
	text, err := os.ReadFile(own)
	if err != nil {
		return err
	}
	text = []byte(strings.Replace(string(text), "\nfunc Standard()", "\nfunc ferrys()", 1))
	if err := os.WriteFile(own, text, 0o666); err != nil {
		return err
	}
	more := strings.Replace(string(code), "components.Standard()", "ferrys()", 1)
	more = strings.Replace(more, "\t\"github.com/ferrympi/ferry/components\"\n", "", 1)
	return os.WriteFile(filepath.Join(dir, "more_gen.go"), []byte(more), 0o666)
}
