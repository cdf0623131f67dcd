package ofi_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/ferrympi/ferry/internal/libtest"
	"github.com/ferrympi/ferry/mtl/trial"
)

// TestOpen_LibraryFileCannotBeMapped_FailsWithReason has a library on a file system that does not answer, and a truncated one, each
// opened in a child process.
func TestOpen_LibraryFileCannotBeMapped_FailsWithReason(t *testing.T) {
	if libtest.IsChild() {
		lib := os.Getenv("LIBRARY")
		fmt.Println(openFirstOf(t, lib, "cxi"))
		libtest.Unblock(t, lib)
		for trial.HangingCalls() > 0 {
			time.Sleep(time.Millisecond)
		}
		return
	}
	libtest.CheckLoadErrors(t, "TestOpen_LibraryFileCannotBeMapped_FailsWithReason", "mtl ofi", useProfiles(t, "cxi"))
}
