package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/framework"
)

const pluginFile = "plugins:\n  - {kind: btl, name: acme, command: [/opt/acme, -v], sha256: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa, priority: 3, env: [ACME]}\n"

func pluginOptions(t *testing.T, text string, mode os.FileMode) Options {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return Options{SiteFile: os.DevNull, UserFile: path, Environ: []string{}}
}

func TestPlugins_Files_AreCombined(t *testing.T) {
	opt := pluginOptions(t, pluginFile, 0o644)
	all, err := Plugins(opt)
	if err != nil || len(all) != 1 || all[0].Name != "acme" || len(all[0].Command) != 2 || all[0].SHA256 != "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" || all[0].Priority != 3 || all[0].File != opt.UserFile {
		t.Errorf("%+v, %v", all, err)
	}
}

func TestPlugins_FileWritableByOthers_ReturnsErrConfig(t *testing.T) {
	_, err := Plugins(pluginOptions(t, pluginFile, 0o666))
	if !errors.Is(err, framework.ErrConfig) || !strings.Contains(err.Error(), "can be written by others") {
		t.Error(err)
	}
	if _, err := Plugins(pluginOptions(t, "plugins: [{kind: btl, nam: x}]\n", 0o600)); !errors.Is(err, framework.ErrConfig) || !strings.Contains(err.Error(), "nam") {
		t.Error(err)
	}
}

func TestLoad_PluginWithoutHost_NamesRemedy(t *testing.T) {
	_, err := Load(framework.NewRegistry(), pluginOptions(t, pluginFile, 0o600))
	if !errors.Is(err, framework.ErrConfig) || !strings.Contains(err.Error(), "ferry/plugin/host") || !strings.Contains(err.Error(), "mpi.WithRegistry") {
		t.Error(err)
	}
}

// FuzzPlugins parses arbitrary entries under plugins. The result is a list or an error.
func FuzzPlugins(f *testing.F) {
	f.Add([]byte("plugins:\n  - {kind: btl, name: udp, command: [/opt/udp, -x], sha256: 5f, priority: 20, env: [A, B=c]}\n"))
	f.Add([]byte("plugins: {kind: btl}\n"))
	f.Add([]byte("plugins: [&a {kind: btl}, *a]\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		list, err := pluginsOf(text)
		if err == nil && len(list) > len(text) {
			t.Errorf("%d entries of %d bytes", len(list), len(text))
		}
	})
}
