package config

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/attacktest"
)

// libraryRegistry has a parameter that names code to run, and one that does not.
func libraryRegistry() *framework.Registry {
	r := framework.NewRegistry()
	r.RegisterParams(framework.ParamsOf("mtl", new(struct {
		Library string `param:"library" default:"libfabric.so.1" level:"user" scope:"process" trusted:"true" doc:"library"`
		Depth   int    `param:"depth" default:"1" level:"user" scope:"process" doc:"depth"`
	}))...)
	return r
}

// writtenBy makes a file in a new folder, both of a user.
func writtenBy(t *testing.T, uid int, text string) (dir, path string) {
	t.Helper()
	dir = t.TempDir()
	path = dir + "/config.yaml"
	if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chmod(path, 0o644)); err != nil {
		t.Fatal(err)
	}
	if uid != os.Geteuid() {
		attacktest.Own(t, dir, path)
	}
	return dir, path
}

func loadFile(path string) (*framework.Values, error) {
	return Load(libraryRegistry(), Options{SiteFile: os.DevNull, UserFile: path, Environ: []string{}})
}

func TestAttack_LibraryInAFileOfAnotherUser_IsRefused(t *testing.T) {
	for _, text := range []string{"mtl.library: /tmp/evil.so\n", "params: {mtl: {library: evil.so}}\n", "plugins: [{kind: btl, name: evil, command: [/tmp/evil]}]\n"} {
		_, path := writtenBy(t, attacktest.User, text)
		_, err := loadFile(path)
		wantError(t, err, path, "belongs to user 65534", "sets ")
		if strings.HasPrefix(text, "plugins") {
			_, err = Plugins(Options{SiteFile: os.DevNull, UserFile: path, Environ: []string{}})
			wantError(t, err, path, "belongs to user 65534")
		}
	}
	_, path := writtenBy(t, attacktest.User, "mtl.depth: 2\n")
	if v, err := loadFile(path); err != nil || get(v, "mtl.depth").Text != "2" {
		t.Errorf("a file of another user that names no code: %v", err)
	}
}

func TestAttack_LibraryInAFileThatOthersCanWrite_IsRefused(t *testing.T) {
	dir, path := writtenBy(t, os.Geteuid(), "mtl.library: /opt/lib.so\n")
	if _, err := loadFile(path); err != nil {
		t.Error(err)
	}
	for changed, mode := range map[string]os.FileMode{path: 0o664, dir: 0o777} {
		if err := os.Chmod(changed, mode); err != nil {
			t.Fatal(err)
		}
		_, err := loadFile(path)
		wantError(t, err, "mtl.library", changed+" can be written by others", "chmod go-w "+changed)
		if err := os.Chmod(changed, 0o700); err != nil {
			t.Fatal(err)
		}
	}
}

// The owner of the folder exchanges the file for a link to a file of root, between the read and
// the check of an earlier version.
func TestAttack_FlippedConfigurationFile_RunsNoCode(t *testing.T) {
	dir, path := writtenBy(t, attacktest.User, "plugins: [{kind: btl, name: evil, command: [/tmp/evil]}]\n")
	evil, good := dir+"/evil.yaml", t.TempDir()+"/good.yaml"
	if err := errors.Join(os.Rename(path, evil), os.WriteFile(good, []byte("{}\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	stop := attacktest.Flip(t, path, evil, good)
	defer stop()
	for range 3000 {
		if list, err := Plugins(Options{SiteFile: os.DevNull, UserFile: path, Environ: []string{}}); len(list) > 0 {
			t.Errorf("the attacker's plugin would be started: %+v, %v", list, err)
			break
		}
	}
}
