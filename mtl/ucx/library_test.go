package ucx_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/ferrympi/ferry/internal/libtest"
	"github.com/ferrympi/ferry/mtl/trial"
)

// The library is on a file system that does not respond, or truncated. Each is opened in a child process.
func TestOpen_LibraryFileCannotBeMapped_FailsWithReason(t *testing.T) {
	if libtest.IsChild() {
		lib := os.Getenv("LIBRARY")
		fmt.Println(openAny(lib))
		libtest.Unblock(t, lib)
		for trial.HangingCalls() > 0 {
			time.Sleep(time.Millisecond)
		}
		return
	}
	libtest.CheckLoadErrors(t, "TestOpen_LibraryFileCannotBeMapped_FailsWithReason", "mtl ucx", simulate(t, "tcp"))
}
