// Package config finds out what the user wants: it reads the configuration
// files and the environment, and joins them with flags and program options into
// one framework.Values, in which every value knows where it came from.
//
// From weakest to strongest: defaults of the components, components.yaml, the site
// file, the user file, FERRY_* variables, flags, options of the program.
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
// An empty FERRY_ variable is unset, for every purpose. A flag, a file or a program sets a
// parameter to the empty text.
//
// plugins: lists transports that are processes of their own (see Plugin).
//
// Lists are YAML lists or comma separated text. Put text that YAML would read
// as a number or a date in quotes.
//
// Each source is a koanf of its own (layer), and koanf merges them. Its keys are the
// full names of parameters, made so when a layer is loaded, and its delimiter is
// one that no name has: so btl can stand beside btl.shm.eager_limit.
//
// The package stands on framework, and is the only one that imports koanf. It
// knows no component.
package config

import (
	"os"

	"github.com/ferrympi/ferry/framework"
)

const (
	// DefaultSiteFile holds what the administrator of a machine set.
	DefaultSiteFile = "/etc/ferry/config.yaml"

	// FileVariable names a file to read in place of the user file. Then the
	// file must exist. It and FlagsVariable are ferry's only FERRY_ variables that set no
	// parameter.
	FileVariable = "FERRY_CONFIG"

	// FlagsVariable lists, separated by commas, the parameters that a launcher has been given
	// as flags: it hands them on as variables, and messages name what the user wrote.
	FlagsVariable = "FERRY_FLAGS"

	// SourceFlag is the source of flags.
	SourceFlag = "flag --set"
)

// SkippedRemedy ends a warning about a file that was skipped (Options.Skipped).
const SkippedRemedy = "set HOME or XDG_CONFIG_HOME to a directory of this user's own"

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

	// Foreign, if not nil, is told once of the FERRY_ variables that set no parameter, and
	// are not like the name of one, if there are any: they are somebody else's.
	Foreign func(variables []string)

	// Skipped, if not nil, is called when the user's configuration directory has a file
	// that the system refuses to read, as in the home of another user. The file counts
	// as empty. reason continues the sentence that the file's name begins.
	Skipped func(file string, reason error)
}

// Load returns the values of all parameters that reg knows. It reads at most two
// files and does not wait for anything else.
//
// Errors answer framework.ErrConfig and say the source: an unknown name (with the
// nearest known one), a bad value, a malformed file (with its line), a file that can't be
// read, except one in the user's configuration directory (see Options.Skipped), a file
// named by FERRY_CONFIG that does not exist, and a file that names plugins or sets a trusted
// parameter although another user may have written it (see internal/trustedfile).
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
		if err := pluggedIn(reg, file); err != nil {
			return nil, err
		}
	}
	layers := []layer{registered(base, framework.SourceManifest), site, user, env}
	layers = append(layers, options(opt.Flags, SourceFlag)...)
	layers = append(layers, options(opt.Explicit, "WithParam")...)
	return merge(base, layers)
}
