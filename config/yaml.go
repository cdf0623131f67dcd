package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	koanfyaml "github.com/knadh/koanf/parsers/yaml"
	"go.yaml.in/yaml/v3"
)

// decode decodes text, which has at most one YAML document, into v. A field that v's type lacks is an error, because it is probably misspelt. The
// message is one line, and has the line number in the text.
func decode(text []byte, v any) error {
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	err := d.Decode(v)
	if err == nil {
		var second yaml.Node
		if err = d.Decode(&second); err == nil {
			return fmt.Errorf("line %d: a second YAML document begins; only one is read", second.Line)
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return errors.New(strings.Join(strings.Fields(err.Error()), " "))
}

// parser is koanf's parser for YAML, limited to one document. It returns texts by the full names of parameters, and stores the value of the key
// plugins in pluginEntries.
type parser struct {
	*koanfyaml.YAML
	pluginEntries *any
}

func (p parser) Unmarshal(text []byte) (map[string]any, error) {
	var nested map[string]any
	if err := decode(text, &nested); err != nil {
		return nil, err
	}
	*p.pluginEntries = nested[pluginsKey]
	delete(nested, pluginsKey)
	return flatten(nested)
}

// flatten returns the texts in nested maps by the full names of parameters. It removes select. and params., and accepts nested and dotted keys.
func flatten(nested map[string]any) (map[string]any, error) {
	flat, keys := map[string]any{}, map[string]string{} // keys has the key that has set a parameter.
	var add func(key string, value any) error
	add = func(key string, value any) error {
		if m, ok := value.(map[string]any); ok {
			for _, k := range slices.Sorted(maps.Keys(m)) {
				sub := k
				if key != "" {
					sub = key + "." + k
				}
				if err := add(sub, m[k]); err != nil {
					return err
				}
			}
			return nil
		}
		text, err := textOf(value)
		if err != nil {
			return fmt.Errorf("key %s: %w", key, err)
		}
		name, selects := strings.CutPrefix(key, "select.")
		if !selects {
			name = strings.TrimPrefix(key, "params.")
		} else if strings.Contains(name, ".") {
			return fmt.Errorf("key %s: select holds lists of components by framework; parameters belong under params", key)
		}
		// The winner of two keys would depend on their spelling.
		if other, twice := keys[name]; twice {
			return fmt.Errorf("parameter %s is set twice, by the keys %s and %s", name, other, key)
		}
		flat[name], keys[name] = text, key
		return nil
	}
	return flat, add("", nested)
}

// textOf returns the text of a YAML scalar, or of a list of scalars joined by
// commas.
func textOf(value any) (string, error) {
	switch v := value.(type) {
	case string, bool, int, int64, uint64, float64:
		return fmt.Sprint(v), nil
	case []any:
		parts := make([]string, len(v))
		for i, e := range v {
			var err error
			if parts[i], err = textOf(e); err != nil {
				return "", err
			}
			if _, list := e.([]any); list || strings.Contains(parts[i], ",") {
				return "", fmt.Errorf("element %v is a list or contains a comma, which separates elements", e)
			}
		}
		return strings.Join(parts, ","), nil
	case nil:
		return "", errors.New(`it has no value; write "" for the empty text`)
	}
	return "", fmt.Errorf("a YAML value of type %T cannot be a parameter; put text in quotes", value)
}
