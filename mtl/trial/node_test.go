package trial

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/ferrympi/ferry/internal/needs"
)

const printProofs = "TRIAL_PRINT_PROOFS"

// TestProof_OtherNamespace_Differs also prints the proofs in a child.
func TestProof_OtherNamespace_Differs(t *testing.T) {
	var own [2]string
	for m := range own {
		var err error
		if own[m], err = Medium(m).Proof(); err != nil {
			t.Fatal(err)
		}
	}
	if os.Getenv(printProofs) != "" {
		_, _ = os.Stdout.WriteString("proofs\n" + own[Memory] + "\n" + own[Loopback] + "\n")
		return
	}
	needs.Root(t, "make namespaces")
	for flags, want := range map[uintptr][2]string{
		0:                     {},
		syscall.CLONE_NEWUSER: {Memory: "is in another user namespace"},
		syscall.CLONE_NEWNET:  {Loopback: "is in another network namespace"},
		syscall.CLONE_NEWPID:  {Memory: "is in another pid namespace"},
	} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), printProofs+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v:\n%s", err, out)
		}
		_, text, _ := strings.Cut(string(out), "proofs\n")
		peer := strings.Split(text, "\n")
		for m := range own {
			if got := Medium(m).Difference(own[m], peer[m]); (peer[m] == own[m]) != (want[m] == "") || want[m] != "" && got != want[m] {
				t.Errorf("namespaces %#x, medium %d: %s, not %s", flags, m, got, want[m])
			}
		}
	}
}

func TestDifference_OtherProof_IsNamed(t *testing.T) {
	for peer, want := range map[string]string{
		"":                  "uses a network",
		"other 0:1 0:2 0:3": "is on another node",
		"boot 0:1":          "is on another node",
		"boot 9:1 0:2 0:3":  "has another /dev/shm",
		"boot 0:1 0:2 9:3":  "is in another user namespace",
	} {
		if got := Memory.Difference("boot 0:1 0:2 0:3", peer); got != want {
			t.Errorf("%q: %s, not %s", peer, got, want)
		}
	}
}
