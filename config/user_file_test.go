package config

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// unreadableFile returns a path that the system refuses to open for any user.
func unreadableFile(t *testing.T, path string) string {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.Symlink(filepath.Base(path), path)); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestUserFile_UnreadableBelowHome_IsSkippedWithItsReason(t *testing.T) {
	home, xdg := t.TempDir(), t.TempDir()
	for environ, path := range map[string]string{
		"HOME=" + home:           unreadableFile(t, home+"/.config/ferry/config.yaml"),
		"XDG_CONFIG_HOME=" + xdg: unreadableFile(t, xdg+"/ferry/config.yaml"),
	} {
		wantSkipped(t, environ, path+" cannot be read: too many levels of symbolic links")
	}
}

func TestUserFile_OfAnotherUser_IsSkippedWithItsReason(t *testing.T) {
	home := t.TempDir()
	path := home + "/.config/ferry/config.yaml"
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("btl.shm.name: other"), 0)); err != nil {
		t.Fatal(err)
	}
	asUser(t, func() { wantSkipped(t, "HOME="+home, path+" cannot be read: permission denied") })
	if err := os.Chmod(filepath.Dir(path), 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Chmod(filepath.Dir(path), 0o755) })
	asUser(t, func() { wantSkipped(t, "HOME="+home, path+" cannot be read: permission denied") })
}

// asUser calls f without the rights of root, which may read everything.
func asUser(t *testing.T, f func()) {
	if os.Geteuid() != 0 {
		f()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // Without unlock, so that the thread ends with this goroutine.
		if _, err := unix.SetfsuidRetUid(65534); err != nil {
			t.Error(err)
			return
		}
		f()
	}()
	<-done
}

func wantSkipped(t *testing.T, environ, want string) {
	t.Helper()
	var skipped []string
	opt := Options{
		SiteFile: os.DevNull, Environ: []string{environ},
		Skipped: func(file string, reason error) { skipped = append(skipped, file+" "+reason.Error()) },
	}
	values, err := Load(registry(), opt)
	if err != nil {
		t.Error(err)
	} else if got := get(values, "btl.shm.name").Text; got != "manifest" || !slices.Equal(skipped, []string{want}) {
		t.Errorf("%s: name is %q, skipped are %q, want %q", environ, got, skipped, want)
	}
	if plugins, err := Plugins(opt); len(plugins) > 0 || err != nil {
		t.Errorf("%s: plugins %v, %v", environ, plugins, err)
	}
}

// A file that an administrator, the environment or the program names is meant to be read.
func TestNamedFile_Unreadable_IsAnError(t *testing.T) {
	path := unreadableFile(t, filepath.Join(t.TempDir(), "config.yaml"))
	for name, opt := range map[string]Options{
		"site":        {SiteFile: path, UserFile: os.DevNull, Environ: []string{}},
		"program":     {SiteFile: os.DevNull, UserFile: path, Environ: []string{}},
		"environment": {SiteFile: os.DevNull, Environ: []string{"FERRY_CONFIG=" + path}},
	} {
		opt.Skipped = func(file string, _ error) { t.Errorf("%s: %s is skipped", name, file) }
		_, err := Load(registry(), opt)
		wantError(t, err, path, "cannot be read: too many levels of symbolic links")
		_, err = Plugins(opt)
		wantError(t, err, path, "cannot be read")
	}
}
