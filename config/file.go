package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/v2"

	"github.com/ferrympi/ferry/framework"
)

// maxFile bounds a configuration file. All parameters with their documentation
// fit into a tenth of it; what is longer is some other file.
const maxFile = 1 << 20

// readFile returns what path sets, sorted by name. The empty path and os.DevNull
// set nothing, nor does a missing file, unless it must exist.
func readFile(path string, must bool) ([]Setting, error) {
	if path == "" || path == os.DevNull {
		return nil, nil
	}
	switch info, err := os.Stat(path); {
	case err != nil && !must && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)):
		return nil, nil
	case err != nil && must:
		return nil, fmt.Errorf("%w: environment %s: %w", framework.ErrConfig, FileVariable, err)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", framework.ErrConfig, err)
	case !info.Mode().IsRegular():
		// Reading a pipe or a device could wait for ever.
		return nil, fmt.Errorf("%w: file %s is not a regular file", framework.ErrConfig, path)
	case info.Size() > maxFile:
		return nil, fmt.Errorf("%w: file %s has %d bytes; a configuration file has at most %d", framework.ErrConfig, path, info.Size(), maxFile)
	}
	return decode(path, file.Provider(path))
}

// decode reads YAML from provider; path names it in messages.
func decode(path string, provider koanf.Provider) ([]Setting, error) {
	k := koanf.New(".")
	if err := k.Load(provider, yaml.Parser()); err != nil {
		text := strings.Join(strings.Fields(err.Error()), " ") // one line
		return nil, fmt.Errorf("%w: file %s: %s", framework.ErrConfig, path, text)
	}
	f := flattener{source: "file " + path, keys: map[string]string{}}
	if err := f.add("", k.Raw()); err != nil {
		return nil, fmt.Errorf("%w: file %s: %w", framework.ErrConfig, path, err)
	}
	return f.settings, nil
}

// flattener turns nested YAML maps into settings.
type flattener struct {
	source   string
	keys     map[string]string // parameter -> the key that set it
	settings []Setting
}

func (f *flattener) add(key string, value any) error {
	if m, ok := value.(map[string]any); ok {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			sub := k
			if key != "" {
				sub = key + "." + k
			}
			if err := f.add(sub, m[k]); err != nil {
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
	// Which of two keys wins would depend on their spelling.
	if other, twice := f.keys[name]; twice {
		return fmt.Errorf("parameter %s is set twice, by the keys %s and %s", name, other, key)
	}
	f.keys[name] = key
	f.settings = append(f.settings, Setting{Name: name, Value: text, Source: f.source})
	return nil
}

// textOf returns the text of a YAML scalar, or of a list of scalars joined by
// commas.
func textOf(value any) (string, error) {
	switch v := value.(type) {
	case string:
		return v, nil
	case bool:
		return strconv.FormatBool(v), nil
	case int:
		return strconv.Itoa(v), nil
	case int64:
		return strconv.FormatInt(v, 10), nil
	case uint64:
		return strconv.FormatUint(v, 10), nil
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64), nil
	case []any:
		parts := make([]string, len(v))
		for i, e := range v {
			if _, nested := e.([]any); nested {
				return "", errors.New("a list can't hold a list")
			}
			var err error
			if parts[i], err = textOf(e); err != nil {
				return "", err
			}
			if strings.Contains(parts[i], ",") {
				return "", fmt.Errorf("element %q holds a comma, which separates elements", parts[i])
			}
		}
		return strings.Join(parts, ","), nil
	case nil:
		return "", errors.New(`it has no value; write "" for the empty text`)
	}
	return "", fmt.Errorf("a YAML value of type %T can't be a parameter; put text in quotes", value)
}
