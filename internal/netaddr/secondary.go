package netaddr

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Secondary returns the reason for which a transport with one interface uses another one than
// name, or the empty string. An interface is secondary
//
//   - if the rules without Include leave it out,
//   - if its network is usually inside a host, and there is another one,
//   - if it has no default route, and one of a known speed that is at least its own has.
//
// The rules are a heuristic without knowledge of the networks of peers. They fail, for
// instance, if the default routes of the hosts lead into separate networks.
func Secondary(ifs []Interface, name string) string {
	at := slices.IndexFunc(ifs, func(i Interface) bool { return i.Name == name })
	if at < 0 {
		return ""
	}
	own := ifs[at]
	if why := own.leadsNowhere(); why != "" {
		return why
	}
	for _, i := range ifs {
		if i.Name == name || !i.isPrimary() {
			continue
		}
		switch {
		case isInside(name) && !isInside(i.Name):
			return "its network is usually inside a host, and " + i.Name + " is there"
		case own.isPrimary() && i.HasDefault && !own.HasDefault && 0 < own.Speed && own.Speed <= i.Speed && isInside(name) == isInside(i.Name):
			return i.Name + " has the default route"
		}
	}
	return ""
}

// HostWithRoutes is Host with the default routes and speeds, which Secondary compares. Some
// drivers take milliseconds to report a speed.
func HostWithRoutes() ([]Interface, error) {
	ifs, err := Host()
	routes := defaultRoutes()
	for k := range ifs {
		i := &ifs[k]
		i.HasDefault, i.Speed = slices.Contains(routes, i.Name), speed(i.Name)
	}
	return ifs, err
}

// isPrimary reports whether peers on other hosts may be in a network of the interface.
func (i Interface) isPrimary() bool {
	return i.isUp() && !i.isLoopback() && len(i.Nets) > 0 && i.leadsNowhere() == ""
}

// leadsNowhere returns the reason for which no transport uses the interface by default.
func (i Interface) leadsNowhere() string {
	switch {
	case i.Empty:
		return "a bridge without members leads nowhere"
	case slices.ContainsFunc(localPrefixes, func(p string) bool { return strings.HasPrefix(i.Name, p) }):
		return "such a network ends at its host"
	}
	return ""
}

// speed returns the speed of an interface in Mb/s, or 0 if it is unknown.
func speed(name string) int {
	text, err := os.ReadFile(filepath.Join("/sys/class/net", name, "speed"))
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return max(n, 0)
}

// defaultRoutes returns the names of the interfaces with a default route.
func defaultRoutes() []string {
	v4, _ := os.ReadFile("/proc/self/net/route")
	v6, _ := os.ReadFile("/proc/self/net/ipv6_route")
	return append(defaults4(string(v4)), defaults6(string(v6))...)
}

// Flags of a route (linux/route.h).
const (
	routeUp     = 0x1
	routeReject = 0x200
)

// defaults4 reads /proc/net/route: name, destination, gateway, flags, three counters, mask.
func defaults4(text string) (names []string) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) > 7 && f[1] == "00000000" && f[7] == "00000000" && isUsable(f[3]) {
			names = append(names, f[0])
		}
	}
	return names
}

// defaults6 reads /proc/net/ipv6_route: destination, its length, source, its length, next hop, metric, two counters, flags, name.
func defaults6(text string) (names []string) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) > 9 && strings.Trim(f[0], "0") == "" && f[1] == "00" && isUsable(f[8]) {
			names = append(names, f[9])
		}
	}
	return names
}

func isUsable(flags string) bool {
	n, err := strconv.ParseUint(flags, 16, 32)
	return err == nil && n&routeUp != 0 && n&routeReject == 0
}
