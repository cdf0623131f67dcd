// Package config finds out what the user wants: it reads the configuration
// files and the environment, and joins them with flags and program options into
// one framework.Values, in which every value knows where it came from.
//
// From weakest to strongest: defaults of the components, components.yaml, what
// `ferry tune` has measured on this machine, the site file, the user file,
// FERRY_* variables, flags, options of the program.
//
// A file is YAML. Parameters are nested or dotted keys; a framework's name by
// itself is its selection list. As YAML can't hold both at one key, select: and
// params: separate them, exactly as in components.yaml:
//
//	btl: {shm: {eager_limit: 8KiB}}
//	cid.policy: lazy
//	select: {btl: "^tcp", pml: [ob1, ucx]}
//	params: {session.linger: 2s}
//
// Lists are YAML lists or comma separated text. Put text that YAML would read
// as a number or a date in quotes.
//
// The package stands on framework, and is the only one that imports koanf. It
// knows no component. Files go through koanf one by one, and are joined here:
// one koanf map can't hold both btl and btl.shm.eager_limit, nor say where a
// value came from.
package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/ferrympi/ferry/framework"
)

const (
	// DefaultSiteFile holds what the administrator of a machine set.
	DefaultSiteFile = "/etc/ferry/config.yaml"

	// FileVariable names a file to read in place of the user file. Then the
	// file must exist. It is the only FERRY_ variable that sets no parameter.
	FileVariable = "FERRY_CONFIG"

	prefix = "FERRY_"
)

// Setting sets one parameter. Load fills in Source where it is empty.
type Setting = framework.Setting

// Options says where to look. The zero value is right for most programs.
type Options struct {
	// SiteFile and UserFile replace DefaultSiteFile and config.yaml in the
	// directory ferry of the user's configuration directory
	// ($XDG_CONFIG_HOME, or .config in $HOME). A file that does not exist is no
	// error; os.DevNull is never read.
	SiteFile, UserFile string

	// Environ replaces os.Environ(), if it is not nil.
	Environ []string

	// Flags come from --set and the like; of one name the last holds.
	Flags []Setting

	// Explicit comes from the program (mpi.WithParam), and wins over all else.
	Explicit []Setting

	// Tuned, if not nil, is told once what became of the result of `ferry tune`.
	Tuned func(Tuned)
}

// Load returns the values of all parameters that reg knows. It reads at most three
// files and does not wait for anything else.
//
// Errors answer framework.ErrConfig and say the source: an unknown name (with the
// nearest known one), a bad value, a file that can't be read or is malformed
// (with its line), and a file named by FERRY_CONFIG that does not exist.
func Load(reg *framework.Registry, opt Options) (*framework.Values, error) {
	values, err := reg.Defaults()
	if err != nil {
		return nil, err
	}
	environ := opt.Environ
	if environ == nil {
		environ = os.Environ()
	}
	env, err := readEnviron(reg, environ)
	if err != nil {
		return nil, err
	}
	site := opt.SiteFile
	if site == "" {
		site = DefaultSiteFile
	}
	user := opt.UserFile
	if user == "" {
		user = env.userFile()
	}
	if env.file != "" {
		user = env.file
	}
	settings, err := readFile(site, false)
	if err != nil {
		return nil, err
	}
	fromUser, err := readFile(user, env.file != "")
	if err != nil {
		return nil, err
	}
	settings = append(settings, fromUser...)
	settings = append(settings, env.settings...)
	settings = appendFrom(settings, opt.Flags, "flag --set")
	settings = appendFrom(settings, opt.Explicit, "WithParam")
	asked, err := values.Set(settings...)
	if err != nil {
		return nil, err
	}
	state, tuned := readTuned(values, asked, env.cacheDir())
	if opt.Tuned != nil {
		opt.Tuned(state)
	}
	if tuned == nil {
		return asked, nil
	}
	return tuned.Set(settings...)
}

// appendFrom appends more to settings, with source where it has none.
func appendFrom(settings, more []Setting, source string) []Setting {
	for _, s := range more {
		if s.Source == "" {
			s.Source = source
		}
		settings = append(settings, s)
	}
	return settings
}

// environment is what Load needs of the process's environment.
type environment struct {
	settings               []Setting
	file, xdg, cache, home string
}

// readEnviron picks out the variables of ferry. A FERRY_ variable that is no
// parameter's is an error: most likely it is misspelt, and the user believes
// that it works.
func readEnviron(reg *framework.Registry, environ []string) (environment, error) {
	var env environment
	for _, entry := range environ {
		name, value, ok := strings.Cut(entry, "=")
		if !ok {
			continue
		}
		switch {
		case name == FileVariable:
			env.file = value
		case name == "XDG_CONFIG_HOME":
			env.xdg = value
		case name == "XDG_CACHE_HOME":
			env.cache = value
		case name == "HOME":
			env.home = value
		case strings.HasPrefix(name, prefix):
			param, ok := reg.EnvParam(name)
			if !ok {
				near := framework.Nearest(name, append(reg.EnvNames(), FileVariable))
				return env, fmt.Errorf("%w: environment variable %s sets no parameter; the nearest known name is %s",
					framework.ErrConfig, name, near)
			}
			env.settings = append(env.settings, Setting{Name: param, Value: value, Source: "environment " + name})
		}
	}
	return env, nil
}

// userFile is where the user file is, or "" if the environment doesn't say. As
// the XDG specification asks, a relative XDG_CONFIG_HOME is ignored.
func (e *environment) userFile() string {
	const file = "ferry/config.yaml"
	switch {
	case filepath.IsAbs(e.xdg):
		return filepath.Join(e.xdg, file)
	case filepath.IsAbs(e.home):
		return filepath.Join(e.home, ".config", file)
	}
	return ""
}
