package trustedfile_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/internal/attacktest"
	"github.com/ferrympi/ferry/internal/trustedfile"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// folder makes a folder with a mode that the umask does not change.
func folder(t *testing.T, path string, mode os.FileMode) string {
	t.Helper()
	must(t, os.Mkdir(path, 0o700))
	must(t, os.Chmod(path, mode))
	return path
}

func file(t *testing.T, path string, mode os.FileMode) string {
	t.Helper()
	must(t, os.WriteFile(path, []byte("text"), 0o600))
	must(t, os.Chmod(path, mode))
	return path
}

// expect compares the results of Open and Check. The problem is a part of the error, "" for none.
func expect(t *testing.T, path, problem string) {
	t.Helper()
	f, err := trustedfile.Open(path)
	if err == nil {
		f.Close()
	}
	for call, err := range map[string]error{"Open": err, "Check": trustedfile.Check(path)} {
		refusal, isRefusal := errors.AsType[*trustedfile.Error](err)
		switch {
		case problem == "" && err != nil:
			t.Errorf("%s(%s): %v", call, path, err)
		case problem != "" && (!isRefusal || !strings.Contains(err.Error(), problem) || refusal.Remedy == ""):
			t.Errorf("%s(%s): %v, want %q and a remedy", call, path, err, problem)
		}
	}
}

func TestOpen_ModesOfFileAndFolders_RefuseWritersOtherThanTheUser(t *testing.T) {
	dir := t.TempDir()
	private, open, sticky := folder(t, dir+"/private", 0o755), folder(t, dir+"/open", 0o777), folder(t, dir+"/sticky", 0o777|os.ModeSticky)
	group := folder(t, dir+"/group", 0o770)
	folder(t, open+"/below", 0o755)
	for path, problem := range map[string]string{
		file(t, private+"/file", 0o644):      "",
		file(t, private+"/writable", 0o664):  "writable can be written by others",
		file(t, sticky+"/file", 0o600):       "",
		file(t, sticky+"/writable", 0o602):   "writable can be written by others",
		file(t, open+"/file", 0o600):         "open can be written by others",
		file(t, open+"/below/file", 0o600):   "open can be written by others",
		file(t, group+"/file", 0o600):        "group can be written by others",
		private:                              "",
		private + "/../private/./file":       "",
		private + "/../open/../private/file": "open can be written by others",
		"/":                                  "",
		"/dev/null":                          "can be written by others",
	} {
		expect(t, path, problem)
	}
}

func TestOpen_Links_CheckEachFolderOnTheWay(t *testing.T) {
	dir := t.TempDir()
	private, open := folder(t, dir+"/private", 0o755), folder(t, dir+"/open", 0o777)
	file(t, private+"/file", 0o600)
	for name, target := range map[string]string{
		private + "/relative": "file", private + "/absolute": private + "/file", private + "/twice": "absolute",
		private + "/folder": "../private", open + "/link": private + "/file", private + "/through": "../open/link",
		private + "/loop": "loop", private + "/root": "/",
	} {
		must(t, os.Symlink(target, name))
	}
	for path, problem := range map[string]string{
		private + "/relative": "", private + "/absolute": "", private + "/twice": "", private + "/folder/file": "",
		private + "/folder/folder/twice": "", private + "/root": "", private + "/root" + private + "/file": "",
		open + "/link": "open can be written by others", private + "/through": "open can be written by others",
	} {
		expect(t, path, problem)
	}
	for path, want := range map[string]error{"": fs.ErrNotExist, private + "/loop": unix.ELOOP, private + "/none": fs.ErrNotExist, private + "/file/x": unix.ENOTDIR, private + "/file/": nil} {
		if _, err := trustedfile.Open(path); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}
}

func TestOpen_RelativePath_StartsAtTheWorkingFolder(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	file(t, "file", 0o600)
	expect(t, "file", "")
	expect(t, "./file", "")
	f, err := trustedfile.Open("file")
	must(t, err)
	defer f.Close()
	if want, err := filepath.EvalSymlinks(filepath.Join(dir, "file")); err != nil || f.Name() != want {
		t.Errorf("name %s, want %s (%v)", f.Name(), want, err)
	}
}

func TestOpen_DescriptorInProc_ChecksTheOpenFile(t *testing.T) {
	fd, err := unix.MemfdCreate("trusted", unix.MFD_CLOEXEC)
	must(t, err)
	defer unix.Close(fd)
	path := fmt.Sprintf("/proc/self/fd/%d", fd)
	must(t, unix.Fchmod(fd, 0o700))
	expect(t, path, "")
	must(t, unix.Fchmod(fd, 0o777))
	expect(t, path, "can be written by others")
}

func TestOpen_FIFO_ReturnsWithoutAWriter(t *testing.T) {
	path := t.TempDir() + "/fifo"
	must(t, unix.Mkfifo(path, 0o600))
	expect(t, path, "")
}

func TestCheckLibrary_NameWithoutSlash_IsLeftToTheLinker(t *testing.T) {
	t.Chdir(t.TempDir())
	file(t, "lib.so", 0o666)
	must(t, trustedfile.CheckLibrary("lib.so"))
	must(t, trustedfile.CheckLibrary("./missing.so"))
	if err := trustedfile.CheckLibrary("./lib.so"); err == nil {
		t.Error("a file that others can write passes")
	}
}

func TestAttack_FilesOfAnotherUser_AreRefused(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o755))
	sticky, theirs := folder(t, dir+"/sticky", 0o777|os.ModeSticky), folder(t, dir+"/theirs", 0o755)
	own := file(t, dir+"/own", 0o600)
	file(t, theirs+"/own", 0o600)
	for _, link := range []string{sticky + "/link", dir + "/link"} {
		must(t, os.Symlink(own, link))
		attacktest.Own(t, link)
	}
	attacktest.Own(t, theirs, file(t, sticky+"/file", 0o644), file(t, dir+"/file", 0o644))
	for path, problem := range map[string]string{
		dir + "/file":    "file belongs to user 65534",
		sticky + "/file": "file belongs to user 65534",
		theirs + "/own":  "theirs belongs to user 65534",
		sticky + "/link": "link belongs to user 65534",
		dir + "/link":    "", // Only root can have put it there.
	} {
		expect(t, path, problem)
	}
}

// Another user exchanges a link while the path is resolved.
func TestAttack_FlippedLink_NeverOpensTheirFile(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o777|os.ModeSticky))
	theirs := folder(t, dir+"/theirs", 0o755)
	attacktest.Own(t, theirs)
	file(t, theirs+"/file", 0o644)
	good := file(t, dir+"/good", 0o600)
	stop := attacktest.Flip(t, dir+"/flips", good, theirs+"/file")
	defer stop()
	for range 5000 {
		f, err := trustedfile.Open(dir + "/flips")
		if err != nil {
			continue
		}
		st, err := f.Stat()
		if err != nil || st.Sys().(*syscall.Stat_t).Uid != 0 || f.Name() != good {
			t.Errorf("opened %s, %v", f.Name(), err)
		}
		f.Close()
	}
}
