package ofi

import (
	"cmp"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/internal/netaddr"
	"github.com/ferrympi/ferry/mtl"
)

// candidate is one provider on one domain, and what was decided about it.
type candidate struct {
	info    *libfabric.Info
	place   int    // in the order of providers, the best lowest
	device  bool   // the system shows a device of it
	far     int    // how far its interface is, and what else speaks against it
	local   bool   // never reaches another node
	note    string // what speaks for it
	refused string // why it is not used; empty: Open tries it
	defect  bool   // because of a defect
	failed  bool   // because it did not open, or failed its test
}

// job is what choosing needs to know of the job, and of the library.
type job struct {
	oneNode   bool // all of its processes are on this node
	localRank int
	version   libfabric.Version
}

// choose orders what the library offers: what Open tries, best first, then what
// is refused, each with its reason.
func choose(infos []libfabric.Info, p *params, j job, t topology) []candidate {
	var all []candidate
	seen := map[string]int{}
	for i := range infos {
		info := &infos[i]
		// The library lists once more what differs in details that we leave to it, or has
		// more (psm3), or less, than what came before.
		key := fmt.Sprint(info.String(), info.AddressFormat)
		k, again := seen[key]
		switch {
		case !again:
			seen[key] = len(all)
			all = append(all, judge(info, p, j, t))
		case carriesSource(info) && !carriesSource(all[k].info):
			all[k] = judge(info, p, j, t)
		}
	}
	order := func(c candidate) int {
		others := len(p.ProviderInclude)
		i := indexFold(p.ProviderInclude, c.info.Provider)
		if i < 0 {
			i = others
		}
		if c.refused != "" {
			i += others + 1
		}
		return i
	}
	slices.SortStableFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(order(a), order(b)), cmp.Compare(a.place, b.place), cmp.Compare(a.far, b.far))
	})
	return rotate(all, j.localRank)
}

// secondaryDistance is added for an interface that peers may not have in common with this host.
// It is more than the distance of two NUMA nodes.
const secondaryDistance = 1 << 10

// carriesSource reports whether a provider has what layout data takes.
func carriesSource(info *libfabric.Info) bool { return info.CQData >= dataBytes && info.Directed }

// rotate gives the ranks of a node different ones of equal interfaces to begin
// with, of one network: nobody knows of a way between two.
func rotate(all []candidate, rank int) []candidate {
	n := 0
	for n < len(all) && all[n].refused == "" && all[n].device && all[n].place == all[0].place && all[n].far == all[0].far &&
		all[n].info.Provider == all[0].info.Provider && all[n].info.Fabric == all[0].info.Fabric {
		n++
	}
	if n > 1 {
		best := slices.Clone(all[:n])
		for i := range best {
			all[i] = best[(i+rank)%n]
		}
	}
	return all
}

func judge(info *libfabric.Info, p *params, j job, t topology) candidate {
	_, local := needs(info.Provider, Local, j.version)
	c := candidate{info: info, local: info.LocalOnly || local}
	dir := t.device(about(info.Provider), info.Domain)
	c.device = dir != ""
	c.place = place(info.Provider, c.device)
	c.far, c.note = t.distance(dir, info.PCI, info.Domain)
	ip, isIP := ipOf(info.AddressFormat, info.Address)
	if isIP {
		if ip.IsLoopback() {
			c.local = true
		}
		if ip.Is6() { // of one interface, the address that more networks carry
			c.far += usualDistance / 2
		}
	}
	if c.local {
		c.far += 2 * usualDistance // it serves no process that comes later from elsewhere
	}
	if len(p.DomainInclude) == 0 && netaddr.Secondary(t.interfaces, info.Domain) != "" {
		c.far += secondaryDistance
	}
	included := len(p.ProviderInclude) > 0
	wanted := !included || indexFold(p.ProviderInclude, info.Provider) >= 0
	// It does harm that the self-test does not always find, or only by waiting.
	if what, ok := needs(info.Provider, Refuse, j.version); ok && wanted {
		c.defect = true
		c.refused = fmt.Sprintf("defect of the provider in libfabric %v: %s (docs/provider-defects.md)", j.version, what)
		return c
	}
	switch {
	case !wanted:
		c.refused = "not in mtl.ofi.provider_include"
	case !included && indexFold(p.ProviderExclude, info.Provider) >= 0:
		c.refused = "in mtl.ofi.provider_exclude"
	case len(p.DomainInclude) > 0 && !matchesAny(p.DomainInclude, info.Domain):
		c.refused = "its domain is not in mtl.ofi.domain_include"
	case len(p.DomainInclude) == 0 && matchesAny(p.DomainExclude, info.Domain):
		c.refused = "its domain is in mtl.ofi.domain_exclude"
	case c.local && !j.oneNode:
		c.refused = "it never leaves the node, and the job has processes on others"
	case isIP && ip.IsLinkLocalUnicast():
		c.refused = "its address is valid on one link only"
	default:
		c.refused = contradiction(info)
	}
	return c
}

// leastMessage is a length that a provider takes if it is of any use, in bytes.
const leastMessage = 4 << 10

// contradiction returns what of a provider's attributes can't be so, with its value. Such a
// provider would fail its test by waiting, or pass it and break later.
func contradiction(info *libfabric.Info) string {
	var system unix.Sysinfo_t
	memory := uint64(math.MaxUint64)
	if unix.Sysinfo(&system) == nil {
		memory = uint64(system.Totalram) * uint64(system.Unit)
	}
	switch width := usable(info.TagFormat); {
	case info.RxSize < 1:
		return fmt.Sprintf("it says that it takes %d receives (rx_attr.size)", info.RxSize)
	case info.TxSize < 1:
		return fmt.Sprintf("it says that it takes %d sends (tx_attr.size)", info.TxSize)
	case width < fewestTagBits+fewestCIDBits:
		return fmt.Sprintf("its tags have %d bits (mem_tag_format %#x), too few for communicator, source and tag", width, info.TagFormat)
	case info.Inject < 0 || uint64(info.Inject) > info.MaxMessage:
		return fmt.Sprintf("it says that it copies messages of %d bytes (inject_size), and takes none above %d (max_msg_size)", info.Inject, info.MaxMessage)
	case info.MaxMessage < leastMessage:
		return fmt.Sprintf("it says that it takes messages of at most %d bytes (max_msg_size)", info.MaxMessage)
	case uint64(info.Inject) > memory:
		return fmt.Sprintf("it says that it copies messages of %d bytes (inject_size), and the machine has %d bytes of memory", info.Inject, memory)
	}
	return ""
}

// mostDomains is how many domains of a provider an error names.
const mostDomains = 3

// summary lists candidates by provider and reason, with their domains.
func summary(all []candidate) string {
	var lines []string
	for i, c := range all {
		alike := func(d candidate) bool { return d.info.Provider == c.info.Provider && d.refused == c.refused }
		if slices.ContainsFunc(all[:i], alike) {
			continue
		}
		var domains []string
		for _, d := range all[i:] {
			if alike(d) && !slices.Contains(domains, d.info.Domain) {
				domains = append(domains, d.info.Domain)
			}
		}
		line := c.info.Provider + " on " + strings.Join(domains[:min(len(domains), mostDomains)], ", ")
		if more := len(domains) - mostDomains; more > 0 {
			line += fmt.Sprintf(" and %d more", more)
		}
		if c.refused != "" {
			line += ": " + c.refused
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "; ")
}

// missed says what users may miss who get the chosen one, or none: what has failed, and what
// is better, or was asked for, and is refused for a defect. Empty: nothing.
func missed(all []candidate, chosen *candidate, include []string) string {
	var out []candidate
	for _, c := range all {
		if c.failed || c.defect && (chosen == nil && c.device || chosen != nil && c.place < chosen.place || indexFold(include, c.info.Provider) >= 0) {
			out = append(out, c)
		}
	}
	if len(out) == 0 {
		return ""
	}
	if chosen == nil {
		return "the network of this machine is not used: " + summary(out)
	}
	return fmt.Sprintf("%v is used instead of %s", chosen.info, summary(out))
}

// described turns candidates into what people read.
func described(all []candidate) []mtl.Candidate {
	out := make([]mtl.Candidate, len(all))
	for i, c := range all {
		out[i] = mtl.Candidate{Name: c.info.String(), Provider: c.info.Provider, Refused: c.refused != "", Defect: c.defect, Failed: c.failed, Reason: c.refused}
		if c.refused == "" {
			out[i].Reason = c.note
		}
	}
	return out
}

func indexFold(list []string, s string) int {
	return slices.IndexFunc(list, func(x string) bool { return strings.EqualFold(x, s) })
}

// matchesAny reports whether name matches one of the patterns (path.Match). A
// pattern that is none matches itself.
func matchesAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, err := path.Match(p, name)
		return ok || err != nil && p == name
	})
}
