package nettest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/internal/needs"
)

// A transport of a third party over UDP runs on a network that loses one packet of 20 and reorders
// one of 10 in each direction. Messages still arrive as the MPI standard requires, with the
// transport compiled in and as a plugin.
func TestVendorTransport_PacketFaults_MessagesArrive(t *testing.T) {
	needs.Time(t)
	h := New(t, Link{Faults: &PacketFaults{Seed: 18, LossFraction: 0.05, ReorderFraction: 0.1, PacketDelay: 200 * time.Microsecond}})
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	run := func(config string, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Env = append(os.Environ(), "FERRY_CONFIG="+config, "XDG_RUNTIME_DIR="+t.TempDir())
		if args[0] == os.Args[0] {
			cmd.Env = append(cmd.Env, envFerry+"=1")
		}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	ferry, compiled, plugin := filepath.Join(dir, "ferry"), filepath.Join(dir, "myferry"), filepath.Join(dir, "btl-udp")
	for _, args := range [][]string{
		{"go", "build", "-o", ferry, "../../cmd/ferry"},
		{"go", "build", "-C", "../../examples/vendor-udp", "-o", plugin, "./btl-udp"},
		{os.Args[0], "build", "--with", "../../examples/vendor-udp", "-o", compiled},
	} {
		if out, err := run(os.DevNull, args...); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, "plugins:\n  - {kind: btl, name: udp, command: [%s], priority: 20}\n", plugin), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ how, binary, config string }{{"compiled in", compiled, os.DevNull}, {"as a plugin", ferry, config}} {
		met := h.Counts(0)
		packets, lost, overtaken := met.Packets.Load(), met.Lost.Load(), met.Reordered.Load()
		line := append([]string{c.binary, "run", "-n", "4", Nodes, "--timeout", (3 * time.Minute).String(), "--set", "pml=ob1", "--set", "btl=self,udp", "--explain"},
			h.Command(c.binary, "conform", "--only", "every size|ordering|^collective")...)
		out, err := run(c.config, line...)
		if passed := len(regexp.MustCompile(`(?m)^pass `).FindAllString(out, -1)); err != nil || passed < 3 || !strings.Contains(strings.Join(strings.Fields(out), " "), "ob1 udp") {
			t.Errorf("%s: %v\n%s", c.how, err, out)
		}
		packets, lost, overtaken = met.Packets.Load()-packets, met.Lost.Load()-lost, met.Reordered.Load()-overtaken
		t.Logf("%s: of %d packets %d were lost and %d reordered", c.how, packets, lost, overtaken)
		if lost < packets/50 || overtaken < packets/50 || packets < 100 {
			t.Errorf("%s: too few faults", c.how)
		}
	}
}
