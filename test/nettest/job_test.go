package nettest

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/internal/needs"
)

// envFerry makes this binary the command ferry, unless it is a wrapper.
const envFerry = "NETTEST_FERRY"

// ferry runs `ferry run` with flags for ranks of ferry itself, and returns their output.
func ferry(t *testing.T, h *Hosts, n int, flags []string, args ...string) (string, error) {
	t.Helper()
	line := append([]string{"run", "-n", fmt.Sprint(n), Nodes, "--timeout", testTimeout.String()}, flags...)
	cmd := exec.Command(os.Args[0], append(line, h.Command(os.Args[0], args...)...)...)
	cmd.Env = append(os.Environ(), envFerry+"=1", "FERRY_CONFIG="+os.DevNull, "XDG_RUNTIME_DIR="+t.TempDir(), "COLUMNS=1000")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// Tests over these hosts prove nothing if ferry takes them for one node.
func TestJob_TwoHosts_AreTwoNodes(t *testing.T) {
	h := New(t)
	if _, err := libfabric.Load("libfabric.so.1"); err != nil {
		needs.Missing(t, "%v: install libfabric1, and build with cgo", err)
	}
	out, err := ferry(t, h, 4, []string{"--set", "pml=cm", "--set", "mtl.ofi.provider_include=tcp;ofi_rxm", "--explain"},
		"conform", "--only", "split by node|every size arrives|concurrent creations")
	if err != nil || strings.Count(out, "\npass ")+strings.Count(out[:5], "pass ") != 3 {
		t.Fatalf("%v\n%s", err, out)
	}
	// The output groups equal pairs, which are those of each node and those between the nodes.
	for _, want := range []string{
		"0-1 x 0-1 cm shm /dev/shm",
		"2-3 x 2-3 cm shm /dev/shm",
		"0-1 x 2-3 cm ofi eth0",
		"2-3 x 0-1 cm ofi eth0",
		"0-3 x itself cm ofi eth0",
	} {
		if !slices.ContainsFunc(strings.Split(out, "\n"), func(line string) bool { return strings.HasPrefix(strings.Join(strings.Fields(line), " "), want) }) {
			t.Errorf("no line %q in\n%s", want, out)
		}
	}
}

// Nor do they if shared memory connects the hosts.
func TestJob_TwoHosts_ShareNoMemory(t *testing.T) {
	h := New(t)
	if out, err := ferry(t, h, 2, []string{"--set", "btl=self,shm"}, "conform", "--only", "every size"); err == nil || !strings.Contains(out, "on another simulated node") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestEnter_InvalidArguments_ErrorNamesCause(t *testing.T) {
	h := New(t)
	line := h.Command("no-such-program")
	for want, c := range map[string]struct {
		args []string
		env  string
	}{
		"not a rank of ferry run: FERRY_BOOTSTRAP_LOCAL_RANK": {line[2:], ""},
		"no-such-program":                           {line[2:], "0"},
		"invalid arguments of a wrapper":            {line[2:4], "0"},
		"the test that created the hosts has ended": {[]string{"/proc/self/fd/12345", "/proc/self/fd/12345", "true"}, "1"},
		"enter network namespace: invalid argument": {[]string{os.DevNull, os.DevNull, "true"}, "1"},
	} {
		cmd := exec.Command(line[0], append([]string{line[1]}, c.args...)...)
		cmd.Env = append(os.Environ(), "FERRY_BOOTSTRAP_LOCAL_RANK="+c.env, "FERRY_BOOTSTRAP_LOCAL_SIZE=2")
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%q: error %v, want %q", out, err, want)
		}
	}
}
