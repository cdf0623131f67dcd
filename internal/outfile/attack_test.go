package outfile_test

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/internal/attacktest"
	"github.com/ferrympi/ferry/internal/outfile"
)

// shared is a folder of the attacker, and a file of this user somewhere else.
func shared(t *testing.T) (dir, precious string) {
	t.Helper()
	dir, precious = t.TempDir(), t.TempDir()+"/precious"
	must(t, os.WriteFile(precious, []byte("precious"), 0o644))
	attacktest.Own(t, dir)
	return dir, precious
}

func TestAttack_LinkAtAnOutput_IsNotFollowed(t *testing.T) {
	eachWay(t, func(t *testing.T, write func(path, s string) error) {
		dir, precious := shared(t)
		missing := precious + ".new"
		for link, to := range map[string]string{"link": precious, "dangling": missing} {
			path := dir + "/" + link
			must(t, os.Symlink(to, path))
			attacktest.Own(t, path)
			if err := write(path, "overwritten"); err == nil || !strings.Contains(err.Error(), "symbolic link of user 65534; remove it") {
				t.Errorf("%s: %v", link, err)
			}
		}
		wantText(t, precious, "precious")
		if _, err := os.Lstat(missing); err == nil {
			t.Error("the file at the end of a dangling link was created")
		}
	})
}

func TestAttack_PipeAtAnOutput_IsNotOpened(t *testing.T) {
	eachWay(t, func(t *testing.T, write func(path, s string) error) {
		dir, _ := shared(t)
		path := dir + "/out"
		must(t, unix.Mkfifo(path, 0o666))
		attacktest.Own(t, path)
		reader, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
		must(t, err)
		defer reader.Close()
		if err := write(path, "text"); err == nil || !strings.Contains(err.Error(), "named pipe of user 65534") {
			t.Error(err)
		}
	})
}

func TestAttack_HardLinkAtAnOutput_IsNotTruncated(t *testing.T) {
	eachWay(t, func(t *testing.T, write func(path, s string) error) {
		dir := t.TempDir()
		must(t, os.WriteFile(dir+"/precious", []byte("precious"), 0o644))
		must(t, os.Link(dir+"/precious", dir+"/out"))
		_ = write(dir+"/out", "overwritten") // A report replaces the name; a stream is refused.
		wantText(t, dir+"/precious", "precious")
	})
}

// The writer of the folder exchanges the name for a link at any moment.
func TestAttack_FlippedLinkAtAnOutput_LeavesOtherFilesAlone(t *testing.T) {
	eachWay(t, func(t *testing.T, write func(path, s string) error) {
		dir, precious := shared(t)
		missing := precious + ".new"
		stop := attacktest.Flip(t, dir+"/out", precious, "", missing, "")
		defer stop()
		for range 2000 {
			_ = write(dir+"/out", "overwritten")
			if _, err := os.Lstat(missing); err == nil {
				t.Fatal("the file at the end of a dangling link was created")
			}
		}
		wantText(t, precious, "precious")
	})
}

func TestAttack_LinkPlantedDuringTheRun_IsReplaced(t *testing.T) {
	dir, precious := shared(t)
	r, err := outfile.NewReport(dir + "/out")
	must(t, err)
	defer r.Close()
	must(t, os.Symlink(precious, dir+"/out"))
	attacktest.Own(t, dir+"/out")
	must(t, r.Write(text("report")))
	wantText(t, precious, "precious")
	wantText(t, dir+"/out", "report")
	if st, err := os.Lstat(dir + "/out"); err != nil || !st.Mode().IsRegular() {
		t.Errorf("out is %v, %v", st.Mode(), err)
	}
}
