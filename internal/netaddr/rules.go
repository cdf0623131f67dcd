package netaddr

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"
)

// Rules select the addresses of a host for a transport. An element is a network
// (10.1.0.0/16), an address, or a pattern of interface names (eth0, ib*). An address is used
// if it matches an element of Include and no element of Exclude. An empty Include matches all
// but the interfaces that lead nowhere.
type Rules struct {
	Include []string
	Exclude []string
}

// LeftOut is an unused address or interface, with the reason.
type LeftOut struct{ What, Why string }

func (l LeftOut) String() string { return l.What + ": " + l.Why }

// Check returns an error that names the first invalid element.
func (r Rules) Check() error {
	for _, one := range slices.Concat(r.Include, r.Exclude) {
		if _, err := parse(one); err != nil {
			return err
		}
	}
	return nil
}

// rule is a parsed element. Either network is valid or names is not empty.
type rule struct {
	network netip.Prefix
	names   string
}

func parse(text string) (rule, error) {
	if a, err := netip.ParseAddr(text); err == nil {
		return rule{network: netip.PrefixFrom(a, a.BitLen())}, nil
	}
	if strings.Contains(text, "/") {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return rule{}, fmt.Errorf("%q is not a network such as 10.1.0.0/16: %w", text, err)
		}
		return rule{network: p.Masked()}, nil
	}
	if _, err := path.Match(text, ""); err != nil || text == "" {
		return rule{}, fmt.Errorf("%q is neither a network, nor an address, nor a pattern of interface names such as eth*", text)
	}
	return rule{names: text}, nil
}

// firstMatch returns the first element of list that matches address a on interface i.
func firstMatch(list []string, i Interface, a netip.Addr) (text string, found bool) {
	for _, text := range list {
		r, err := parse(text)
		if err != nil {
			continue
		}
		ok, _ := path.Match(r.names, i.Name)
		if r.network.IsValid() && r.network.Contains(a) || r.names != "" && ok {
			return text, true
		}
	}
	return "", false
}

// localPrefixes are name prefixes of interfaces whose networks end at this host, although
// other hosts have equal names and addresses.
var localPrefixes = []string{"docker", "virbr"}

// Apply returns the interfaces with their selected addresses, and the interfaces and addresses
// left out. Without Include, bridges without members and those of docker and libvirt are left
// out too.
func (r Rules) Apply(ifs []Interface) (kept []Interface, left []LeftOut) {
	for _, i := range ifs {
		why := ""
		switch {
		case !i.isUp():
			why = "the interface is down"
		case len(r.Include) == 0:
			why = i.leadsNowhere()
		}
		if why != "" {
			if len(i.Nets) > 0 || i.isUp() {
				left = append(left, LeftOut{i.Name, why})
			}
			continue
		}
		one := i
		one.Nets = nil
		for _, n := range i.Nets {
			what := fmt.Sprintf("%s (%s)", n.Addr(), i.Name)
			if by, out := firstMatch(r.Exclude, i, n.Addr()); out {
				left = append(left, LeftOut{what, "excluded by " + by})
			} else if _, in := firstMatch(r.Include, i, n.Addr()); !in && len(r.Include) > 0 {
				left = append(left, LeftOut{what, "not included"})
			} else {
				one.Nets = append(one.Nets, n)
			}
		}
		kept = append(kept, one)
	}
	return kept, left
}

// Unmatched returns the elements of Exclude that match no interface and no address of ifs.
func (r Rules) Unmatched(ifs []Interface) []string {
	return slices.DeleteFunc(slices.Clone(r.Exclude), func(element string) bool {
		return slices.ContainsFunc(ifs, func(i Interface) bool {
			_, found := firstMatch([]string{element}, i, netip.Addr{}) // Matches the name of an interface without addresses.
			for _, n := range i.Nets {
				_, match := firstMatch([]string{element}, i, n.Addr())
				found = found || match
			}
			return found
		})
	})
}

// Common returns the index of the interface whose network between hosts contains a, or -1 if
// there is none. Of several such networks the one with the longest prefix is used, as in
// a routing table; of equals the first.
func Common(ifs []Interface, a netip.Addr) int {
	index, longest := -1, -1
	for at, i := range ifs {
		if !reaches(i, a) {
			continue
		}
		for _, n := range i.Nets {
			if n.Contains(a) && n.Bits() > longest {
				index, longest = at, n.Bits()
			}
		}
	}
	return index
}

// Own reports whether a is an address of these interfaces.
func Own(ifs []Interface, a netip.Addr) bool {
	return slices.ContainsFunc(ifs, func(i Interface) bool {
		return slices.ContainsFunc(i.Nets, func(n netip.Prefix) bool { return n.Addr() == a })
	})
}
