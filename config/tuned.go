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
	// Err says why the file is not used, and what to do about it. It is not a reason
	// not to start, but users should be told.
	Err error
}

// readTuned returns the measured values, and what became of them. base holds the
// defaults, asked what all other sources say.
func readTuned(base, asked *framework.Values, dir string) (t Tuned, measured layer) {
	var p struct {
		Use bool `param:"use"`
	}
	if asked.Decode("tune", &p) != nil {
		return t, measured // the registry doesn't have it
	}
	if !p.Use {
		use, _ := asked.Get(UseTuned)
		t.Off = use.Source
		return t, measured
	}
	if !tuned.Exists(dir) {
		return t, measured
	}
	machine := tuned.ThisMachine()
	file := machine.File(dir)
	result, err := tuned.Read(file, machine)
	if errors.Is(err, fs.ErrNotExist) {
		return t, measured
	}
	t.File = file
	if err == nil {
		measured, err = tunedLayer(result, base)
	}
	if err != nil {
		t.Err = fmt.Errorf("%s %w: its values are not used; `ferry tune` measures again, `ferry tune --forget` removes it", file, err)
		return t, measured
	}
	t.Result = result
	return t, measured
}

// tunedLayer is what was found better than the defaults in base. A parameter that
// this program doesn't have is another program's.
func tunedLayer(r *tuned.Result, base *framework.Values) (layer, error) {
	better := texts{}
	for _, p := range r.Params {
		spec, ok := base.Spec(p.Name)
		switch {
		case !ok:
			continue
		case spec.Level != framework.LevelTuner:
			return layer{}, fmt.Errorf("sets %s, which is not for tuning", p.Name)
		case spec.DefaultSource == framework.SourceDefault && spec.Default != p.Default:
			return layer{}, fmt.Errorf("was measured when the default of %s was %s, and now it is %s", p.Name, p.Default, spec.Default)
		}
		if p.Value != p.Default {
			better[p.Name] = p.Value
		}
	}
	l := better.layer(SourceTuned)
	l.standing = true
	if err := base.Check(l.settings()...); err != nil {
		return l, fmt.Errorf("makes no sense: %w", err)
	}
	return l, nil
}
