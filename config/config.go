// Package config loads the configuration. It combines configuration files, the environment, flags and options of the program into one
// framework.Values, with the source of each value.
//
// In ascending precedence, the sources are the defaults of components, components.yaml, the site
// file, the user file, FERRY_* variables, flags, options of the program.
//
// A file is YAML. Parameters are nested or dotted keys. The name of a framework is the key of its selection list. YAML allows either a list or
// nested keys at one key, and the keys select and params separate them as in components.yaml:
//
//	btl: {shm: {eager_limit: 8KiB}}
//	cid.policy: lazy
//	select: {btl: "^tcp", pml: [ob1, ucx]}
//	params: {session.linger: 2s}
//
// An empty FERRY_ variable counts as unset. Flags, files and programs can set a parameter to the empty text.
//
// The key plugins lists transports in separate processes (see Plugin).
//
// Lists are YAML lists or comma separated text. Put text that YAML would read
// as a number or a date in quotes.
//
// Each source is a koanf instance (layer), and koanf merges them. Its keys are the full names of parameters, and its delimiter does not occur in
// names, so that btl and btl.shm.eager_limit are independent keys.
//
// The package stands on framework, and is the only one that imports koanf. It has no knowledge of components.
package config

import (
	"os"

	"github.com/ferrympi/ferry/framework"
)

const (
	// DefaultSiteFile is the configuration of a machine by its administrator.
	DefaultSiteFile = "/etc/ferry/config.yaml"

	// FileVariable names a file that replaces the user file and must exist. FileVariable and FlagsVariable are the only FERRY_ variables that
	// set no parameter.
	FileVariable = "FERRY_CONFIG"

	// FlagsVariable lists, separated by commas, the parameters that a launcher has received as flags and passes on as variables. Messages
	// then name the flag as the source.
	FlagsVariable = "FERRY_FLAGS"

	// SourceFlag is the source of flags.
	SourceFlag = "flag --set"
)

// SkippedRemedy ends a warning about a file that was skipped (Options.Skipped).
const SkippedRemedy = "set HOME or XDG_CONFIG_HOME to a directory of this user"

// Setting sets one parameter. Load fills in Source where it is empty.
type Setting = framework.Setting

// Options are the inputs of Load. The zero value is right for most programs.
type Options struct {
	// SiteFile and UserFile replace DefaultSiteFile and the file ferry/config.yaml in the user's configuration directory
	// ($XDG_CONFIG_HOME, or .config in $HOME). A missing file is no error. os.DevNull is not read.
	SiteFile, UserFile string

	// Environ replaces os.Environ(), if it is not nil.
	Environ []string

	// Flags are from --set and similar flags. The last one of a name counts.
	Flags []Setting

	// Explicit is from the program (mpi.WithParam), and has the highest precedence.
	Explicit []Setting

	// Foreign, if not nil, is called at most once, with the FERRY_ variables that set no parameter and resemble none. They belong to other
	// software.
	Foreign func(variables []string)

	// Skipped, if not nil, is called if the system denies access to a file in the user's configuration directory, for example in the home of
	// another user. The file counts as empty. reason is a predicate for the file, such as "cannot be read".
	Skipped func(file string, reason error)
}

// Load returns the values of all parameters of reg. It reads at most two files, and does not block otherwise.
//
// Errors match framework.ErrConfig and contain the source. They report an unknown name (with the nearest known one), an invalid value, a malformed
// file (with the line), a file that cannot be read, except in the user's configuration directory (see Options.Skipped), a missing file of
// FERRY_CONFIG, and a file that names plugins or sets a trusted parameter although another user may have written it (see internal/trustedfile).
func Load(reg *framework.Registry, opt Options) (*framework.Values, error) {
	base, err := reg.Defaults()
	if err != nil {
		return nil, err
	}
	if opt.Environ == nil {
		opt.Environ = os.Environ()
	}
	env, foreign, err := environment(reg, opt.Environ)
	if err != nil {
		return nil, err
	}
	if len(foreign) > 0 && opt.Foreign != nil {
		opt.Foreign(foreign)
	}
	siteAt, userAt := opt.files()
	site, err := siteAt.layer(nil)
	if err != nil {
		return nil, err
	}
	user, err := userAt.layer(opt.Skipped)
	if err != nil {
		return nil, err
	}
	for _, file := range []layer{site, user} {
		if err := file.checkTrust(base); err != nil {
			return nil, err
		}
		if err := checkPlugins(reg, file); err != nil {
			return nil, err
		}
	}
	layers := []layer{defaultsFrom(base, framework.SourceManifest), site, user, env}
	layers = append(layers, optionLayers(opt.Flags, SourceFlag)...)
	layers = append(layers, optionLayers(opt.Explicit, "WithParam")...)
	return merge(base, layers)
}
