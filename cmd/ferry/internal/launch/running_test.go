package launch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap/local/control"
)

func TestRunning_JobsOfOtherBases_AreFound(t *testing.T) {
	list := "Num       RefCount Protocol Flags    Type St Inode Path\n" +
		"0000000000000000: 00000002 00000000 00010000 0001 01 1234 /my tmp/ferry-1/control\n" +
		"0000000000000000: 00000003 00000000 00000000 0001 03 1235 /my tmp/ferry-1/bootstrap\n" +
		"0000000000000000: 00000003 00000000 00000000 0001 03 1236\n" +
		"0000000000000000: 00000002 00000000 00010000 0001 01 1237 @/tmp/ferry-2/control\n" +
		"0000000000000000: 00000002 00000000 00010000 0001 01 1238 /control\n"
	if got := controlSockets(strings.NewReader(list)); !slices.Equal(got, []string{"/my tmp/ferry-1/control"}) {
		t.Errorf("found %q", got)
	}
	if got := escape(`/a*b?c[d]\e`); got != `/a\*b\?c\[d]\\e` {
		t.Errorf("pattern %q", got)
	}
}

// controlled runs a job with a control socket, and calls f while it runs.
func controlled(t *testing.T, j Job, f func(dir string, stop context.CancelFunc)) (Result, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	j.IsControllable = true
	j.Stdout = &watcher{want: "ready", seen: func() {
		base := os.Getenv("XDG_RUNTIME_DIR")
		dirs := slices.DeleteFunc(Running(), func(dir string) bool { return filepath.Dir(dir) != base })
		if len(dirs) != 1 {
			t.Errorf("running: %v", dirs)
			cancel()
			return
		}
		go f(dirs[0], cancel)
	}}
	return j.Run(ctx)
}

func TestRunning_DirectoryOfADeadJob_IsNotListed(t *testing.T) {
	j := shell(t, 1, "echo ready; sleep 1000")
	_, err := controlled(t, j, func(dir string, stop context.CancelFunc) {
		defer stop()
		if st, err := os.Stat(filepath.Join(dir, control.Name)); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("the socket: %v, %v", st, err)
		}
		dead := filepath.Join(t.TempDir(), "ferry-dead")
		if err := os.Mkdir(dead, 0o700); err != nil {
			t.Error(err)
		}
		if isRunning(dead) {
			t.Error("a directory without a socket is listed")
		}
		if err := os.Rename(filepath.Join(dir, control.Name), filepath.Join(dead, control.Name)); err != nil {
			t.Error(err)
		}
		if isRunning(dead) || isRunning(dir) {
			t.Error("a directory without a lock, or without a socket, is listed")
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// TestControl_JobIsEnding_RefusesChanges while a rank takes its time.
func TestControl_JobIsEnding_RefusesChanges(t *testing.T) {
	j := shell(t, 2, `echo ready; trap "" TERM; [ $FERRY_BOOTSTRAP_LOCAL_RANK = 0 ] && while [ ! -e end ]; do sleep 0.01; done; exit 3`)
	j.WorkingDir = t.TempDir()
	end := func() {
		if err := os.WriteFile(filepath.Join(j.WorkingDir, "end"), nil, 0o600); err != nil {
			t.Error(err)
		}
	}
	res, err := controlled(t, j, func(dir string, _ context.CancelFunc) {
		defer end()
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
			c, err := control.Dial(dir)
			if err != nil {
				t.Error(err)
				return
			}
			st, err := c.Status(t.Context())
			c.Close()
			if err != nil {
				t.Error(err)
				return
			}
			if !st.IsEnding {
				continue
			}
			if c, err = control.Dial(dir); err != nil {
				t.Error(err)
				return
			}
			_, err = c.Resize(t.Context(), control.Resize{Op: control.Sub, N: 1, Pset: []byte("mpi://WORLD"), Wait: time.Hour})
			c.Close()
			if err == nil || err.Error() != errEnding.Error() {
				t.Errorf("got %v", err)
			}
			return
		}
		t.Error("the job is not ending")
	})
	if err != nil || res.Status != 3 {
		t.Errorf("status %d, %v", res.Status, err)
	}
}
