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

	"github.com/ferrympi/ferry/framework"
)

// pluginsKey is the key of the list of plugins in a configuration file.
const pluginsKey = "plugins"

// Plugin is an entry under plugins, a BTL in a separate process.
type Plugin struct {
	Kind     framework.Kind
	Name     string
	Command  []string
	SHA256   string `yaml:"sha256"`
	Priority int
	// Environment of the plugin, as names of variables or NAME=value.
	Env []string
	// ProtocolGoPlugin, also if empty, or ProtocolFerry.
	Protocol string

	// File with the entry.
	File string `yaml:"-"`
}

// Control protocols between a rank and its plugin.
const (
	ProtocolGoPlugin = "go-plugin" // go-plugin over gRPC.
	ProtocolFerry    = "ferry"     // Control frames of docs/plugin-protocol.md.
)

// Check returns an error if the entry is invalid.
func (p Plugin) Check() error {
	switch {
	case p.Kind == framework.MTL || p.Kind == framework.PML:
		return errors.New("it works on users' buffers and requests, which another process cannot access: compile it in, by ferry build --with")
	case p.Kind != framework.BTL:
		return errors.New("only a btl can be a plugin")
	case !framework.ValidName(p.Name):
		return errors.New("want a lower case letter, then letters, digits and '_'")
	case len(p.Command) == 0 || p.Command[0] == "" || p.Command[0][0] != '/':
		return fmt.Errorf("command %q: want an absolute path, and arguments", p.Command)
	case p.Protocol != "" && p.Protocol != ProtocolGoPlugin && p.Protocol != ProtocolFerry:
		return fmt.Errorf("protocol %q: want %s or %s", p.Protocol, ProtocolGoPlugin, ProtocolFerry)
	}
	if sum, err := hex.DecodeString(p.SHA256); p.SHA256 != "" && (err != nil || len(sum) != sha256.Size) {
		return fmt.Errorf("sha256 %q: want %d hexadecimal digits", p.SHA256, 2*sha256.Size)
	}
	return nil
}

// Plugged is an optional interface of components that are plugins.
type Plugged interface{ Plugin() Plugin }

// Plugins returns the plugins of the site file and the user file. It returns ErrConfig if another user may have written a file with plugins, because
// plugins are executed.
func Plugins(opt Options) (all []Plugin, err error) {
	site, user := opt.files()
	for _, l := range []location{site, user} {
		doc, err := l.read()
		if l.skips(err) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("%w: file %s %w", framework.ErrConfig, l.path, err)
		}
		list, err := pluginsOf(doc.text)
		if err != nil {
			return nil, fmt.Errorf("%w: file %s: %s: %w", framework.ErrConfig, l.path, pluginsKey, err)
		}
		if len(list) > 0 {
			if err := doc.checkTrust(pluginsKey); err != nil {
				return nil, err
			}
		}
		for _, p := range list {
			p.File = l.path
			all = append(all, p)
		}
	}
	return all, nil
}

// pluginsOf returns the entries of a file.
func pluginsOf(text []byte) (list []Plugin, err error) {
	var file struct{ Plugins yaml.Node }
	if yaml.Unmarshal(text, &file) != nil || file.Plugins.IsZero() {
		return nil, nil // Load reports the error.
	}
	entries, err := yaml.Marshal(&file.Plugins)
	if err == nil {
		err = decode(entries, &list)
	}
	return list, err
}

// checkPlugins returns an error for a plugin of the files that the program does not start.
func checkPlugins(reg *framework.Registry, l layer) error {
	list, _ := l.pluginEntries.([]any)
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

// userFile returns the path of the user file, "" if the environment has no directory for it. The XDG specification requires that a relative
// directory is ignored.
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
