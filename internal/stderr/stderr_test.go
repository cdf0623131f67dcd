package stderr_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/internal/stderr"
)

const child = "STDERR_TEST_CHILD"

// A write to descriptor 2 through os.Stderr would end the process.
func TestWriter_PipeWithoutReader_ReturnsEPIPE(t *testing.T) {
	if os.Getenv(child) != "" {
		_, err := stderr.Writer{}.Write([]byte("lost"))
		if !errors.Is(err, unix.EPIPE) {
			t.Fatal(err)
		}
		fmt.Println("it lives")
		return
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), child+"=1")
	cmd.Stderr = w
	out, err := cmd.Output()
	w.Close()
	if err != nil || string(out[:min(len(out), 9)]) != "it lives\n" {
		t.Errorf("%v: %q", err, out)
	}
}
