package config

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/framework"
)

// pluginsKey holds, in a configuration file, a list of plugins.
const pluginsKey = "plugins"

// Plugin is an entry under plugins: a BTL that runs as a process of its own.
type Plugin struct {
	Kind     framework.Kind
	Name     string
	Command  []string
	SHA256   string `yaml:"sha256"`
	Priority int
	Env      []string // variables of the environment that it may see: names, or NAME=value

	File string `yaml:"-"` // which names it
}

// Check says why an entry can't be a plugin, wherever it stands; nil: it can.
func (p Plugin) Check() error {
	switch {
	case p.Kind == framework.MTL || p.Kind == framework.PML:
		return errors.New("it works on users' buffers and requests, which another process can't see: compile it in, by ferry build --with")
	case p.Kind != framework.BTL:
		return errors.New("only a btl can be a plugin")
	case !framework.ValidName(p.Name):
		return errors.New("want a lower case letter, then letters, digits and '_'")
	case len(p.Command) == 0 || p.Command[0] == "" || p.Command[0][0] != '/':
		return fmt.Errorf("command %q: want an absolute path, and arguments", p.Command)
	}
	if sum, err := hex.DecodeString(p.SHA256); p.SHA256 != "" && (err != nil || len(sum) != sha256.Size) {
		return fmt.Errorf("sha256 %q: want %d hexadecimal digits", p.SHA256, 2*sha256.Size)
	}
	return nil
}

// Plugged is implemented by a component that is a plugin.
type Plugged interface{ Plugin() Plugin }

// Plugins returns the plugins that the site file and the user file name. A file that names
// one and that somebody else could have written is ErrConfig: it would say what this user
// executes.
func Plugins(opt Options) (all []Plugin, err error) {
	site, user := opt.files()
	for _, l := range []location{site, user} {
		path := l.path
		switch err := checkFile(path); {
		case path == os.DevNull, path == "", l.skips(err):
			continue
		case err != nil:
			return nil, fmt.Errorf("%w: file %s %w", framework.ErrConfig, path, err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("%w: file %s can't be read: %w", framework.ErrConfig, path, err)
		}
		list, err := pluginsOf(text)
		if err == nil && len(list) > 0 {
			err = trusted(path)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: file %s: %s: %w", framework.ErrConfig, path, pluginsKey, err)
		}
		for _, p := range list {
			p.File = path
			all = append(all, p)
		}
	}
	return all, nil
}

// pluginsOf reads the entries of a file.
func pluginsOf(text []byte) (list []Plugin, err error) {
	var file struct{ Plugins yaml.Node }
	if yaml.Unmarshal(text, &file) != nil || file.Plugins.IsZero() {
		return nil, nil // Load says what is wrong with a file
	}
	entries, err := yaml.Marshal(&file.Plugins)
	if err == nil {
		err = decode(entries, &list)
	}
	return list, err
}

// trusted says who else could have written a file.
func trusted(path string) error {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return err
	}
	if st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("the file belongs to user %d, not to root or to this one", st.Uid)
	}
	if st.Mode&0o022 != 0 {
		return fmt.Errorf("the file can be written by others (mode %#o)", st.Mode&0o777)
	}
	return nil
}

// pluggedIn says what of the plugins that the files name the program doesn't start.
func pluggedIn(reg *framework.Registry, l layer) error {
	list, _ := l.plugins.([]any)
	for i, e := range list {
		m, _ := e.(map[string]any)
		kind, name := framework.Kind(fmt.Sprint(m["kind"])), fmt.Sprint(m["name"])
		c, _ := reg.Lookup(kind, name)
		if _, ok := framework.As[Plugged](c); !ok {
			return fmt.Errorf("%w: %s: %s[%d]: this program starts no plugin %s %s: it has to import github.com/ferrympi/ferry/plugin/host, call host.Load, and open sessions with mpi.WithRegistry",
				framework.ErrConfig, l.source, pluginsKey, i, kind, name)
		}
	}
	return nil
}

// files returns the locations of the site file and of the user file.
func (o Options) files() (site, user location) {
	environ := o.Environ
	if environ == nil {
		environ = os.Environ()
	}
	site = location{cmp.Or(o.SiteFile, DefaultSiteFile), mayBeMissing}
	if named := lookup(environ, FileVariable); named != "" {
		return site, location{named, mustExist}
	}
	if o.UserFile != "" {
		return site, location{o.UserFile, mayBeMissing}
	}
	return site, location{userFile(environ), mayBeUnreadable}
}

// userFile is the user's own file; "" where the environment names no directory for it. As the
// XDG specification asks, a relative directory is ignored.
func userFile(environ []string) string {
	const path = "ferry/config.yaml"
	xdg, home := lookup(environ, "XDG_CONFIG_HOME"), lookup(environ, "HOME")
	switch {
	case filepath.IsAbs(xdg):
		return filepath.Join(xdg, path)
	case filepath.IsAbs(home):
		return filepath.Join(home, ".config", path)
	}
	return ""
}
