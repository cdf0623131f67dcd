package tcp_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/test/nettest"
)

// refused runs two ranks that cannot reach each other. The error of each rank, and the output of `ferry
// explain`, must contain all texts of one alternative.
func refused(t *testing.T, h *nettest.Hosts, set [2]string, want [2][]string) {
	t.Helper()
	line := func(flags []string, program []string) []string {
		line := append(append(flags, nodes(h)...), "--set", "btl=self,tcp", "--set", "btl.tcp.connect_timeout=1s", "-n", "1", "-x", set[0])
		line = append(line, there(h, program)...)
		return slices.Concat(line, []string{":", "-n", "1", "-x", set[1]}, there(h, program))
	}
	hasAll := func(text string) bool {
		return slices.ContainsFunc(want[:], func(all []string) bool {
			return !slices.ContainsFunc(all, func(w string) bool { return !strings.Contains(text, w) })
		})
	}
	j := startLine(t, line(nil, rank("greet")))
	for _, f := range j.failures() {
		t.Log(f.text)
		if f.class != "ErrTransport" || !hasAll(f.text) {
			t.Errorf("%s: %s; want ErrTransport and one of %q", f.class, f.text, want)
		}
	}
	j.well()
	out := startLine(t, line([]string{"--explain"}, ferry(t, "explain", "--rank"))).well()
	explained := 0
	for line := range strings.Lines(out) {
		if strings.Contains(line, "  no transport  ") && hasAll(line) {
			t.Logf("ferry explain: %s", line)
			explained++
		}
	}
	if explained != 2 {
		t.Errorf("ferry explain has not both ways, and want one of %q:\n%s", want, out)
	}
}

// alike gives both ranks the same parameters.
var alike = [2]string{"FERRY_BTL_TCP_SECURITY=auth", "FERRY_BTL_TCP_SECURITY=auth"}

func TestTwoHosts_Firewall_ErrorHasEachAddress(t *testing.T) {
	whole(t)
	h := nettest.New(t, nettest.Link{}, nettest.Link{}, nettest.Link{})
	h.Cut(0) // Packets are dropped silently.
	var want [2][]string
	for me := range want {
		// Packets are rejected.
		h.Run(me, fmt.Sprintf("ip route add unreachable %v/32", h.Addr(1-me, 1)), fmt.Sprintf("ip route add prohibit %v/32", h.Addr(1-me, 2)))
		for link, reason := range []string{"no answer", "no route to host", "permission denied"} {
			want[me] = append(want[me], fmt.Sprint(h.Addr(1-me, link), ":"), ": "+reason)
		}
	}
	refused(t, h, alike, want)
}

func TestTwoHosts_NoCommonNetwork_ErrorNamesTheAddress(t *testing.T) {
	whole(t)
	h := nettest.New(t, nettest.Link{}, nettest.Link{})
	var want [2][]string
	for me := range want {
		h.Run(me, fmt.Sprintf("ip addr del %v/24 dev eth%d", h.Addr(me, 1-me), 1-me))
		want[me] = []string{fmt.Sprint(h.Addr(1-me, 1-me), ":"), ": network is unreachable"}
	}
	refused(t, h, alike, want)
}

// The only address of each host is one that the system has not found unique yet.
func TestTwoHosts_NewIPv6Address_JobWaitsForIt(t *testing.T) {
	whole(t)
	build(t)
	h := nettest.New(t, nettest.Link{UsesIPv6: true})
	for me := range 2 {
		h.Run(me, "sysctl -qw net.ipv6.conf.eth0.dad_transmits=3", fmt.Sprintf("ip neigh del %v dev eth0", h.Addr(1-me, 0)),
			fmt.Sprintf("ip addr del %v/64 dev eth0", h.Addr(me, 0)), fmt.Sprintf("ip addr add %v/64 dev eth0", h.Addr(me, 0)))
	}
	out := start(t, h, []string{"--set", "btl=self,tcp"}, rank("greet")...).well()
	if strings.Count(out, "greeted\n") != 2 || strings.Contains(out, "failed to open") {
		t.Error(out)
	}
}

// The errors have the parameter and both values.
func TestTwoHosts_SecurityDiffers_BothNameIt(t *testing.T) {
	whole(t)
	refused(t, nettest.New(t), [2]string{"FERRY_BTL_TCP_SECURITY=auth", "FERRY_BTL_TCP_SECURITY=none"},
		[2][]string{{"btl.tcp.security is none here and auth at the peer"}, {"btl.tcp.security is auth here and none at the peer"}})
}
