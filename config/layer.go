package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"

	koanfyaml "github.com/knadh/koanf/parsers/yaml"
	koanffile "github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/v2"

	"github.com/ferrympi/ferry/framework"
)

const (
	prefix = "FERRY_"

	// delimiter is koanf's. What has it in its name is no parameter.
	delimiter = " "

	// maxFile bounds a configuration file. All parameters with their documentation
	// fit into a tenth of it; what is longer is some other file.
	maxFile = 1 << 20

	sourceEnvironment = "environment"
)

// layer is what one source sets: texts by the full names of parameters.
type layer struct {
	*koanf.Koanf
	source   string
	standing bool // it is for all jobs

	plugins any // what a file has under plugins

	flags []string // names whose source is a flag, see FlagsVariable
}

func newLayer(source string, provider koanf.Provider, parser koanf.Parser) (layer, error) {
	l := layer{Koanf: koanf.New(delimiter), source: source}
	if err := l.Load(provider, parser); err != nil {
		return l, fmt.Errorf("%w: %s: %w", framework.ErrConfig, source, err)
	}
	return l, nil
}

// texts is a koanf provider of what is at hand. koanf's own, confmap, copies by
// reflection, which costs a program's start a tenth of a millisecond.
type texts map[string]any

func (t texts) Read() (map[string]any, error) { return t, nil }
func (t texts) ReadBytes() ([]byte, error)    { return nil, errors.ErrUnsupported }

// layer returns t as a layer. Reading a map can't fail.
func (t texts) layer(source string) layer {
	l, _ := newLayer(source, t, nil)
	return l
}

// settings returns what the layer sets, sorted by name.
func (l layer) settings() []Setting {
	var list []Setting
	for _, name := range l.Keys() {
		list = append(list, Setting{Name: name, Value: l.String(name), Source: l.sourceOf(name)})
	}
	return list
}

func (l layer) sourceOf(name string) string {
	if slices.Contains(l.flags, name) {
		return SourceFlag
	}
	if l.source == sourceEnvironment {
		return l.source + " " + framework.EnvName(name)
	}
	return l.source
}

// merge returns the values that hold when layers are merged over the defaults, the
// weakest first. What a layer sets must make sense also where a stronger one
// replaces it.
func merge(base *framework.Values, layers []layer) (*framework.Values, error) {
	all := registered(base, framework.SourceDefault)
	for _, l := range layers {
		settings := l.settings()
		if len(settings) == 0 {
			continue // koanf would go through all defaults again
		}
		if err := base.Check(settings...); err != nil {
			return nil, err
		}
		if err := all.Merge(l.Koanf); err != nil {
			return nil, err
		}
	}
	settings := all.settings()
	for i, s := range settings {
		for _, l := range slices.Backward(layers) {
			if l.Exists(s.Name) {
				settings[i].Source, settings[i].Standing = l.sourceOf(s.Name), l.standing
				break
			}
		}
	}
	return base.Set(settings...)
}

// registered is the defaults that come from source.
func registered(base *framework.Values, source string) layer {
	m := texts{}
	for _, name := range base.Names() {
		if v, _ := base.Get(name); v.Source == source {
			m[name] = v.Text
		}
	}
	return m.layer(source)
}

// options returns a layer for each setting: all are checked, and each has a source of
// its own, or else this one.
func options(settings []Setting, source string) []layer {
	var layers []layer
	for _, s := range settings {
		layers = append(layers, texts{s.Name: s.Value}.layer(cmp.Or(s.Source, source)))
	}
	return layers
}

// location is the path of a configuration file, and how it is treated if it can't be read.
type location struct {
	path string
	need need
}

// need is how a location treats a file that is not there, or can't be read.
type need int

const (
	mayBeMissing    need = iota // the site file, and the user file that a program names
	mustExist                   // the file that FERRY_CONFIG names
	mayBeUnreadable             // the user file that XDG_CONFIG_HOME or HOME leads to
)

// skips reports whether a file with this error counts as empty.
func (l location) skips(err error) bool {
	return errors.Is(err, fs.ErrNotExist) && l.need != mustExist ||
		errors.Is(err, errUnreadable) && l.need == mayBeUnreadable
}

// file returns the layer of the file, which is empty for the empty path, os.DevNull, and a
// file that skips leaves out. An unreadable one among those is reported to skipped, if that is
// not nil.
func (l location) file(skipped func(file string, reason error)) (layer, error) {
	source := "file " + l.path
	switch err := checkFile(l.path); {
	case l.path == os.DevNull, l.skips(err):
		if errors.Is(err, errUnreadable) && skipped != nil {
			skipped(l.path, err)
		}
		return texts{}.layer(source), nil
	case err != nil && l.need == mustExist:
		return layer{}, fmt.Errorf("%w: environment %s: %s %w", framework.ErrConfig, FileVariable, source, err)
	case err != nil:
		return layer{}, fmt.Errorf("%w: %s %w", framework.ErrConfig, source, err)
	}
	var plugins any
	all, err := newLayer(source, koanffile.Provider(l.path), parser{koanfyaml.Parser(), &plugins})
	all.standing, all.plugins = true, plugins
	return all, err
}

// errUnreadable is the error of checkFile for a file that the system refuses.
var errUnreadable = errors.New("can't be read")

// checkFile returns nil if path is a readable, regular file of at most maxFile bytes. To read
// another could take forever. An error continues the sentence that the path begins.
func checkFile(path string) error {
	switch info, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("is missing: %w", fs.ErrNotExist)
	case err != nil:
		return unreadable(err)
	case !info.Mode().IsRegular():
		return errors.New("is not a regular file")
	case info.Size() > maxFile:
		return fmt.Errorf("has %d bytes, where at most %d are expected", info.Size(), maxFile)
	}
	f, err := os.Open(path)
	if err != nil {
		return unreadable(err)
	}
	return f.Close()
}

// unreadable returns errUnreadable with the reason, without the path.
func unreadable(err error) error {
	return fmt.Errorf("%w: %w", errUnreadable, cmp.Or(errors.Unwrap(err), err))
}
