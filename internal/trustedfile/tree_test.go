package trustedfile_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/internal/attacktest"
	"github.com/ferrympi/ferry/internal/trustedfile"
)

func TestCheckTree_EntriesThatOthersCanChange_AreRefused(t *testing.T) {
	dir := t.TempDir()
	tree := func(name string) string {
		root := folder(t, dir+"/"+name, 0o755)
		file(t, folder(t, root+"/below", 0o755)+"/file", 0o644)
		return root
	}
	writable, open, sticky, hidden, link := tree("writable"), tree("open"), tree("sticky"), tree("hidden"), dir+"/link"
	must(t, os.Chmod(writable+"/below/file", 0o646))
	must(t, os.Chmod(open+"/below", 0o775))
	must(t, os.Chmod(sticky, 0o777|os.ModeSticky))
	file(t, hidden+"/.lock", 0o666)
	folder(t, hidden+"/_state", 0o777)
	must(t, os.Symlink(writable, link))
	for path, problem := range map[string]string{
		tree("fine"): "", hidden: "", writable: "file can be written by others", link: "file can be written by others",
		open: "below can be written by others", sticky: "others can make files",
	} {
		err := trustedfile.CheckTree(path)
		refusal, isRefusal := errors.AsType[*trustedfile.Error](err)
		if problem == "" && err != nil || problem != "" && (!isRefusal || !strings.Contains(err.Error(), problem) || refusal.Remedy == "") {
			t.Errorf("%s: %v, want %q", path, err, problem)
		}
	}
	if err := trustedfile.CheckTree(dir + "/none"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// TestCheckTree_SourcesOfUmask002_NamesOneCommand runs the remedy.
func TestCheckTree_SourcesOfUmask002_NamesOneCommand(t *testing.T) {
	above := folder(t, t.TempDir()+"/above", 0o755)
	root := folder(t, above+"/root", 0o775)
	file(t, folder(t, root+"/below", 0o775)+"/file", 0o664)
	remedy := func() string {
		refusal, ok := errors.AsType[*trustedfile.Error](trustedfile.CheckTree(root))
		if !ok {
			return ""
		}
		return refusal.Remedy
	}
	for _, path := range []string{root, root + "/below", root + "/below/file"} {
		if got, want := remedy(), "chmod -R go-w "+root; got != want {
			t.Errorf("remedy %q, want %q", got, want)
		}
		st, err := os.Stat(path)
		must(t, err)
		must(t, os.Chmod(path, st.Mode()&^0o022))
	}
	must(t, os.Chmod(root+"/below", 0o777|os.ModeSticky))
	must(t, exec.Command("sh", "-c", remedy()).Run())
	must(t, trustedfile.CheckTree(root))
	must(t, os.Chmod(above, 0o775))
	if got, want := remedy(), "chmod go-w "+above; got != want {
		t.Errorf("remedy %q for a folder above, want %q", got, want)
	}
}

func TestCheckTree_FileOfAnotherUser_IsRefused(t *testing.T) {
	root := folder(t, t.TempDir()+"/tree", 0o755)
	attacktest.Own(t, file(t, root+"/file", 0o644))
	if err := trustedfile.CheckTree(root); err == nil || !strings.Contains(err.Error(), "belongs to user 65534") {
		t.Error(err)
	}
}
