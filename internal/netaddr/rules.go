package netaddr

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"
)

// Rules say which addresses of a host a transport uses. An element is a network
// (10.1.0.0/16), an address, or a pattern of interface names (eth0, ib*).
type Rules struct {
	Include []string // only what one of these names; empty: what is likely to lead to others
	Exclude []string // and not what one of these names
}

// LeftOut is an address, or an interface, that is not used, and why.
type LeftOut struct{ What, Why string }

func (l LeftOut) String() string { return l.What + ": " + l.Why }

// Check says which element can't be read.
func (r Rules) Check() error {
	for _, one := range slices.Concat(r.Include, r.Exclude) {
		if _, err := parse(one); err != nil {
			return err
		}
	}
	return nil
}

// rule is an element: a network, or a pattern of names.
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

// first returns the first of some elements that names the address on i.
func first(list []string, i Interface, a netip.Addr) (text string, found bool) {
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

// ends are how interfaces begin whose networks are of this host and nobody else, though
// other hosts have some of the same name and addresses.
var ends = []string{"docker", "virbr"}

// Apply returns the interfaces with those of their addresses that the rules leave, and
// what they leave out. Without Include that is also what leads nowhere: bridges without
// members, and those of docker and libvirt.
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
			if by, out := first(r.Exclude, i, n.Addr()); out {
				left = append(left, LeftOut{what, "excluded by " + by})
			} else if _, in := first(r.Include, i, n.Addr()); !in && len(r.Include) > 0 {
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
			_, found := first([]string{element}, i, netip.Addr{}) // The name also of an interface without addresses.
			for _, n := range i.Nets {
				_, match := first([]string{element}, i, n.Addr())
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
