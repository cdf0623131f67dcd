package config

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/ferrympi/ferry/config/tuned"
	"github.com/ferrympi/ferry/framework"
)

const (
	// SourceTuned is the source of values that `ferry tune` has measured.
	SourceTuned = "tuned"

	// UseTuned is the parameter that says whether such values are used. A registry
	// that doesn't have it (components/core registers it) has no such source.
	UseTuned = "tune.use"
)

// Tuned is what became of the result of `ferry tune`.
type Tuned struct {
	File   string        // that was found; empty: none was
	Result *tuned.Result // in use; nil: none is
	Off    string        // the source of tune.use=off; empty: it is on
	// Err says why the file is not used, and what to do about it. It is no reason
	// not to start, but users should be told.
	Err error
}

// cacheDir is where results are, or "" if the environment doesn't say.
func (e *environment) cacheDir() string { return tuned.Dir(e.cache, e.home) }

// readTuned returns defaults with the measured values in their place, or nil if
// there are none to use. asked holds what all other sources say.
func readTuned(defaults, asked *framework.Values, dir string) (Tuned, *framework.Values) {
	var t Tuned
	var p struct {
		Use bool `param:"use"`
	}
	if asked.Decode("tune", &p) != nil {
		return t, nil // the registry doesn't have it
	}
	if !p.Use {
		use, _ := asked.Get(UseTuned)
		t.Off = use.Source
		return t, nil
	}
	if !tuned.Exists(dir) {
		return t, nil
	}
	machine := tuned.ThisMachine()
	file := machine.File(dir)
	result, err := tuned.Read(file, machine)
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil
	}
	t.File = file
	var values *framework.Values
	if err == nil {
		values, err = apply(result, defaults)
	}
	if err != nil {
		t.Err = fmt.Errorf("%s %w: its values are not used; `ferry tune` measures again, `ferry tune --forget` removes it", file, err)
		return t, nil
	}
	t.Result = result
	return t, values
}

// apply sets in defaults what was found better than they are. A parameter that
// this program doesn't have is another program's.
func apply(r *tuned.Result, defaults *framework.Values) (*framework.Values, error) {
	var settings []Setting
	for _, p := range r.Params {
		spec, ok := defaults.Spec(p.Name)
		switch {
		case !ok:
			continue
		case spec.Level != framework.LevelTuner:
			return nil, fmt.Errorf("sets %s, which is not for tuning", p.Name)
		case spec.DefaultSource == framework.SourceDefault && spec.Default != p.Default:
			return nil, fmt.Errorf("was measured when the default of %s was %s, and now it is %s", p.Name, p.Default, spec.Default)
		}
		if p.Value != p.Default {
			settings = append(settings, Setting{Name: p.Name, Value: p.Value, Source: SourceTuned})
		}
	}
	values, err := defaults.Set(settings...)
	if err != nil {
		return nil, fmt.Errorf("makes no sense: %w", err)
	}
	return values, nil
}
