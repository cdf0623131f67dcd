package base

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// Such folders have thousands of files, and each process searches several libraries at its start.
func TestExists_LargeFolder_IsNotListed(t *testing.T) {
	before := libraryDirs
	defer func() { libraryDirs = before }()
	root := t.TempDir()
	libraryDirs = []string{filepath.Join(root, "*-linux-gnu")}
	dir := filepath.Join(root, "x86_64-linux-gnu")
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	t.Setenv("LD_LIBRARY_PATH", "")
	count := func() float64 {
		return testing.AllocsPerRun(10, func() {
			if exists("libnone.so.1") {
				t.Error("a missing library is found")
			}
		})
	}
	few := count()
	for i := range 500 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("lib%d.so", i)), nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if many := count(); many > few+100 {
		t.Errorf("%v allocations in a folder of 500 files, %v in an empty one", many, few)
	}
	if !exists("lib7.so") {
		t.Error("a library that is there is not found")
	}
}
