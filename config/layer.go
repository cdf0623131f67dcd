package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/knadh/koanf/v2"

	"github.com/ferrympi/ferry/framework"
)

const (
	prefix = "FERRY_"

	// delimiter is koanf's. What has it in its name is no parameter.
	delimiter = " "

	sourceEnvironment = "environment"
)

// layer is what one source sets: texts by the full names of parameters.
type layer struct {
	*koanf.Koanf
	source   string
	standing bool // it is for all jobs

	plugins any      // Value of pluginsKey in a file.
	file    document // Of a file.

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
