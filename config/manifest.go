package config

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/knadh/koanf/parsers/yaml"

	"github.com/ferrympi/ferry/framework"
)

// ManifestVersion is the version of components.yaml that ParseManifest reads.
const ManifestVersion = 1

// Manifest is what components.yaml says: the components of a program. A generator
// makes from it the code that registers them.
type Manifest struct {
	Components []ManifestComponent
	NotBuilt   []framework.Verdict // Kind, Name, Reason and Hint of what users may ask for, but isn't there
	Select     []Setting           // selection lists by framework, sorted
	Params     []Setting           // other defaults of parameters, sorted
}

// ManifestComponent is a component to compile in.
type ManifestComponent struct {
	Kind     framework.Kind
	Name     string
	Import   string // package path; its function Component makes the component
	Priority int
}

// ParseManifest reads a components.yaml; name stands for it in messages. An
// import path whose first element has no dot is relative to the module of ferry.
//
// Errors answer framework.ErrConfig and say where: YAML errors with the line,
// others with the path of the entry. Checked are the fields, duplicates, and
// that selection lists are sound and name only what the manifest has. Parameters
// under params can be checked only by the program that has the components:
// (*framework.Registry).Defaults does.
func ParseManifest(name string, text []byte) (*Manifest, error) {
	m, err := parseManifest(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", framework.ErrConfig, name, err)
	}
	return m, nil
}

func parseManifest(text []byte) (*Manifest, error) {
	raw, err := yaml.Parser().Unmarshal(text)
	if err != nil {
		return nil, errors.New(strings.Join(strings.Fields(err.Error()), " "))
	}
	root := entry{fields: raw}
	if err := root.known("version", "components", "not_built", "plugins", "select", "params"); err != nil {
		return nil, err
	}
	if v, ok := raw["version"]; !ok || v != ManifestVersion {
		return nil, fmt.Errorf("version is %v: this ferry reads version %d", v, ManifestVersion)
	}
	m := &Manifest{}
	seen := map[string]string{}
	if err := root.list("components", func(e entry) error { return m.addComponent(e, seen) }); err != nil {
		return nil, err
	}
	if err := root.list("not_built", func(e entry) error { return m.addNotBuilt(e, seen) }); err != nil {
		return nil, err
	}
	err = root.list("plugins", func(e entry) error {
		return fmt.Errorf("%s: this version of ferry launches no plugins; remove the entry", e.path)
	})
	if err != nil {
		return nil, err
	}
	f := flattener{source: framework.SourceManifest, keys: map[string]string{}}
	for _, section := range []string{"select", "params"} {
		f.settings = nil
		switch v := raw[section].(type) {
		case nil:
			continue
		case map[string]any:
			if err := f.add(section, v); err != nil {
				return nil, err
			}
		default:
			return nil, fmt.Errorf("%s: want a map of names to values", section)
		}
		if section == "select" {
			m.Select = f.settings
		} else {
			m.Params = f.settings
		}
	}
	return m, m.checkSelect()
}

func (m *Manifest) addComponent(e entry, seen map[string]string) error {
	if err := e.known("kind", "name", "import", "priority"); err != nil {
		return err
	}
	kind, name, err := e.identity(seen)
	if err != nil {
		return err
	}
	c := ManifestComponent{Kind: kind, Name: name}
	if c.Import, err = e.text("import", true); err != nil {
		return err
	}
	if !isImportPath(c.Import) {
		return fmt.Errorf("%s: import %q is no package path", e.path, c.Import)
	}
	var ok bool
	if c.Priority, ok = e.fields["priority"].(int); !ok {
		return fmt.Errorf("%s: priority %v: want a whole number", e.path, e.fields["priority"])
	}
	m.Components = append(m.Components, c)
	return nil
}

func (m *Manifest) addNotBuilt(e entry, seen map[string]string) error {
	if err := e.known("kind", "name", "reason", "hint"); err != nil {
		return err
	}
	kind, name, err := e.identity(seen)
	if err != nil {
		return err
	}
	v := framework.Verdict{Kind: kind, Name: name, Status: framework.StatusNotBuilt}
	if v.Reason, err = e.text("reason", true); err != nil {
		return err
	}
	if v.Hint, err = e.text("hint", false); err != nil {
		return err
	}
	m.NotBuilt = append(m.NotBuilt, v)
	return nil
}

// checkSelect lets selection itself judge the lists, over stand-ins of the
// components.
func (m *Manifest) checkSelect() error {
	r := framework.NewRegistry()
	for _, c := range m.Components {
		r.Register(standIn(c))
	}
	for _, v := range m.NotBuilt {
		r.NotBuilt(v.Kind, v.Name, v.Reason, v.Hint)
	}
	for _, s := range m.Select {
		r.SetDefault(s.Name, s.Value)
	}
	values, err := r.Defaults()
	if err != nil {
		return err
	}
	_, err = r.SelectAll(context.Background(), values)
	return err
}

// standIn is a component that is only a name.
type standIn ManifestComponent

func (s standIn) Info() framework.Info                         { return framework.Info{Kind: s.Kind, Name: s.Name} }
func (s standIn) Params() any                                  { return nil }
func (s standIn) Probe(context.Context, any) framework.Verdict { return framework.Usable() }

// entry is a YAML map and where it stands.
type entry struct {
	path   string // "components[2]"
	fields map[string]any
}

// known refuses fields that have no meaning: most likely they are misspelt.
func (e entry) known(names ...string) error {
	for _, field := range slices.Sorted(maps.Keys(e.fields)) {
		if slices.Contains(names, field) {
			continue
		}
		where := ""
		if e.path != "" {
			where = e.path + ": "
		}
		return fmt.Errorf("%sunknown field %q; the nearest known name is %s", where, field, framework.Nearest(field, names))
	}
	return nil
}

// list calls f for each element of a list of maps.
func (e entry) list(field string, f func(entry) error) error {
	if e.fields[field] == nil {
		return nil
	}
	elements, ok := e.fields[field].([]any)
	if !ok {
		return fmt.Errorf("%s: want a list", field)
	}
	for i, element := range elements {
		path := fmt.Sprintf("%s[%d]", field, i)
		fields, ok := element.(map[string]any)
		if !ok {
			return fmt.Errorf("%s: want a map of fields", path)
		}
		if err := f(entry{path, fields}); err != nil {
			return err
		}
	}
	return nil
}

func (e entry) text(field string, needed bool) (string, error) {
	switch v := e.fields[field].(type) {
	case string:
		if v == "" && needed {
			break
		}
		return v, nil
	case nil:
		if !needed {
			return "", nil
		}
	default:
		return "", fmt.Errorf("%s: %s %v: want text", e.path, field, v)
	}
	return "", fmt.Errorf("%s: %s is missing", e.path, field)
}

// identity returns kind and name, and remembers them in seen.
func (e entry) identity(seen map[string]string) (framework.Kind, string, error) {
	var id [2]string
	for i, field := range [...]string{"kind", "name"} {
		v, err := e.text(field, true)
		if err != nil {
			return "", "", err
		}
		if !framework.ValidName(v) {
			return "", "", fmt.Errorf("%s: %s %q: want a lower case letter, then letters, digits and '_'", e.path, field, v)
		}
		id[i] = v
	}
	if !framework.ValidKind(id[0]) {
		return "", "", fmt.Errorf("%s: kind %q is a word that configuration files use otherwise", e.path, id[0])
	}
	key := id[0] + " " + id[1]
	if other, ok := seen[key]; ok {
		return "", "", fmt.Errorf("%s: %s is already in %s", e.path, key, other)
	}
	seen[key] = e.path
	return framework.Kind(id[0]), id[1], nil
}

// isImportPath reports whether s is safe to write into Go source as an import.
func isImportPath(s string) bool {
	for _, element := range strings.Split(s, "/") {
		if strings.Trim(element, ".") == "" {
			return false // empty, or a relative step
		}
		for i := range len(element) {
			c := element[i]
			letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
			if !letter && strings.IndexByte("._~-", c) < 0 {
				return false
			}
		}
	}
	return true
}
