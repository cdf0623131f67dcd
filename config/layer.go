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

	// delimiter is koanf's. Names of parameters do not contain it.
	delimiter = " "

	sourceEnvironment = "environment"
)

// layer is the settings of one source. Keys are full names of parameters.
type layer struct {
	*koanf.Koanf
	source string
	// The source applies to all jobs.
	isStanding bool

	// Value of pluginsKey in a file.
	pluginEntries any
	sourceFile    document

	// Names with a flag as source, see FlagsVariable.
	flagNames []string
}

func newLayer(source string, provider koanf.Provider, parser koanf.Parser) (layer, error) {
	l := layer{Koanf: koanf.New(delimiter), source: source}
	if err := l.Load(provider, parser); err != nil {
		return l, fmt.Errorf("%w: %s: %w", framework.ErrConfig, source, err)
	}
	return l, nil
}

// texts is a koanf provider of a map. koanf's own, confmap, copies by reflection, which adds a tenth of a millisecond to a program's start.
type texts map[string]any

func (t texts) Read() (map[string]any, error) { return t, nil }
func (t texts) ReadBytes() ([]byte, error)    { return nil, errors.ErrUnsupported }

// layer returns t as a layer. Reading a map cannot fail.
func (t texts) layer(source string) layer {
	l, _ := newLayer(source, t, nil)
	return l
}

// settings returns the settings of the layer, sorted by name.
func (l layer) settings() []Setting {
	var list []Setting
	for _, name := range l.Keys() {
		list = append(list, Setting{Name: name, Value: l.String(name), Source: l.sourceOf(name)})
	}
	return list
}

func (l layer) sourceOf(name string) string {
	if slices.Contains(l.flagNames, name) {
		return SourceFlag
	}
	if l.source == sourceEnvironment {
		return l.source + " " + framework.EnvName(name)
	}
	return l.source
}

// merge returns the values after merging layers over the defaults, in ascending precedence. Values that a later layer replaces are checked, too.
func merge(base *framework.Values, layers []layer) (*framework.Values, error) {
	all := defaultsFrom(base, framework.SourceDefault)
	for _, l := range layers {
		settings := l.settings()
		if len(settings) == 0 {
			continue // koanf would copy all defaults again.
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
				settings[i].Source, settings[i].IsStanding = l.sourceOf(s.Name), l.isStanding
				break
			}
		}
	}
	return base.Set(settings...)
}

// defaultsFrom returns the layer of the defaults from source.
func defaultsFrom(base *framework.Values, source string) layer {
	m := texts{}
	for _, name := range base.Names() {
		if v, _ := base.Get(name); v.Source == source {
			m[name] = v.Text
		}
	}
	return m.layer(source)
}

// optionLayers returns a layer for each setting, so that all are checked. source applies to settings without a source.
func optionLayers(settings []Setting, source string) []layer {
	var layers []layer
	for _, s := range settings {
		layers = append(layers, texts{s.Name: s.Value}.layer(cmp.Or(s.Source, source)))
	}
	return layers
}
