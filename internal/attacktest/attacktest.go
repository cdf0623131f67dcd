// Package attacktest has the parts of tests that attack ferry's files as another user of the
// machine. Only tests import it.
package attacktest

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/internal/needs"
)

// User is the id of the attacker. The files of this user are those of Own.
const User = 65534

// Own gives files, folders and links to the attacker. Links are not followed.
func Own(t testing.TB, paths ...string) {
	t.Helper()
	needs.Root(t, "make files of another user")
	for _, path := range paths {
		if err := os.Lchown(path, User, User); err != nil {
			t.Fatal(err)
		}
	}
}

// Library returns the path of a file of the attacker, named as a library.
func Library(t testing.TB) string {
	t.Helper()
	path := t.TempDir() + "/lib.so"
	if err := os.WriteFile(path, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	Own(t, path)
	return path
}

// Link makes a link of the attacker at path. It returns its target, a file of this user with the
// given contents.
func Link(t testing.TB, path, contents string) (target string) {
	t.Helper()
	target = t.TempDir() + "/precious"
	if err := errors.Join(os.WriteFile(target, []byte(contents), 0o644), os.Symlink(target, path)); err != nil {
		t.Fatal(err)
	}
	Own(t, path)
	return target
}

// Flip replaces the file at path repeatedly and atomically by links of the attacker to each of the
// targets. The target "" removes path instead. The caller calls stop.
func Flip(t testing.TB, path string, targets ...string) (stop func()) {
	t.Helper()
	needs.Root(t, "make files of another user")
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-quit:
				return
			default:
			}
			target := targets[i%len(targets)]
			if target == "" {
				_ = os.Remove(path)
				continue
			}
			_ = os.Symlink(target, path+".new")
			_ = os.Lchown(path+".new", User, User)
			_ = unix.Rename(path+".new", path)
		}
	}()
	return func() {
		close(quit)
		<-done
	}
}
