package build

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ferrympi/ferry/cmd/ferry/internal/exit"
	"github.com/ferrympi/ferry/cmd/ferry/internal/gotool"
	"github.com/ferrympi/ferry/cmd/ferry/internal/version"
)

// directives collects the replace and exclude directives of modules in folders. The go command
// applies them to the main module only, which is the written one here.
type directives struct {
	// The key has the version, if there is one.
	replacementByModule map[string]replacement
	// Lines of a go.mod.
	excludeLines string
}

// replacement is one replace directive.
type replacement struct {
	old, new moduleVersion
	// The module with the directive.
	declaringModule string
}

// moduleVersion is a module as in a go.mod. The path may be a folder, and the version empty.
type moduleVersion struct{ Path, Version string }

func (m moduleVersion) String() string {
	if m.Version == "" {
		return fmt.Sprintf("%q", m.Path)
	}
	return fmt.Sprintf("%q %s", m.Path, m.Version)
}

// carry adds the directives of a module. Two modules must not replace one module differently.
func (d *directives) carry(ctx context.Context, module, dir string) error {
	text, err := gotool.Go{Dir: dir}.Run(ctx, "mod", "edit", "-json")
	if err != nil {
		return err
	}
	var mod struct {
		Replace []struct{ Old, New moduleVersion }
		Exclude []moduleVersion
	}
	if err := json.Unmarshal(text, &mod); err != nil {
		return fmt.Errorf("go.mod of %s: %w", module, err)
	}
	for _, e := range mod.Exclude {
		d.excludeLines += fmt.Sprintf("exclude %v\n", e)
	}
	for _, r := range mod.Replace {
		if r.New.Version == "" && !filepath.IsAbs(r.New.Path) {
			r.New.Path = filepath.Join(dir, r.New.Path)
		}
		key := r.Old.String()
		if other, ok := d.replacementByModule[key]; ok && other.new != r.New {
			return exit.Usagef("modules %s and %s replace %v by different ones, %v and %v: make their go.mod agree", other.declaringModule, module, r.Old, other.new, r.New)
		}
		d.replacementByModule[key] = replacement{r.Old, r.New, module}
	}
	return nil
}

// lines returns the lines of a go.mod. Ferry and the given modules have replacements already.
func (d *directives) lines(given map[string]bool) string {
	var lines strings.Builder
	for _, key := range slices.Sorted(maps.Keys(d.replacementByModule)) {
		if r := d.replacementByModule[key]; r.old.Path != version.Module && !given[r.old.Path] {
			fmt.Fprintf(&lines, "replace %v => %v\n", r.old, r.new)
		}
	}
	return "\n" + lines.String() + d.excludeLines
}
