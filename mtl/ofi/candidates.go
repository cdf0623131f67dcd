package ofi

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/internal/netaddr"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/base"
)

// candidate is a provider on a domain, with the verdict about it.
type candidate struct {
	providerInfo *libfabric.Info
	// priority is the result of providerPriority: the lowest wins.
	priority  int
	hasDevice bool
	// numaDistance includes penalties. It decides between equal priorities.
	numaDistance int
	isNodeLocal  bool
	// note is a reason for the candidate, or empty.
	note string
	// refusal is the reason not to use the candidate. Open tries candidates without one.
	refusal string
	// isDefective is set if refusal is a known defect.
	isDefective bool
	// hasFailed is set if refusal is the error of Open or of the self-test.
	hasFailed bool
}

// jobTraits are the properties of the job and of libfabric that candidates depend on.
type jobTraits struct {
	// isOneNode is set if all processes of the job are on this node.
	isOneNode      bool
	localRank      int
	libraryVersion libfabric.Version
}

// choose assesses the providers of the library. It returns the candidates for Open in order of preference,
// followed by the refused ones.
func choose(infos []libfabric.Info, p *params, j jobTraits, t topology) []candidate {
	var all []candidate
	seen := map[string]int{}
	for i := range infos {
		info := &infos[i]
		// The library repeats entries that differ only in attributes that ferry ignores or, with psm3, in
		// capabilities.
		key := fmt.Sprint(info.String(), info.AddressFormat)
		k, again := seen[key]
		switch {
		case !again:
			seen[key] = len(all)
			all = append(all, assess(info, p, j, t))
		case carriesSource(info) && !carriesSource(all[k].providerInfo):
			all[k] = assess(info, p, j, t)
		}
	}
	order := func(c candidate) int {
		others := len(p.ProviderInclude)
		i := indexFold(p.ProviderInclude, c.providerInfo.Provider)
		if i < 0 {
			i = others
		}
		if c.refusal != "" {
			i += others + 1
		}
		return i
	}
	slices.SortStableFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(order(a), order(b)), cmp.Compare(a.priority, b.priority), cmp.Compare(a.numaDistance, b.numaDistance))
	})
	return rotateEqual(all, j.localRank)
}

// secondaryDistance is the penalty of an interface whose network some peers may lack. It exceeds the
// distance of any two NUMA nodes.
const secondaryDistance = 1 << 10

// carriesSource reports whether a provider supports layout data.
func carriesSource(info *libfabric.Info) bool {
	return info.CQData >= dataBytes && info.HasDirectedReceive
}

// rotateEqual spreads the ranks of a node over equal interfaces of one network. Interfaces of different networks may not
// reach one another.
func rotateEqual(all []candidate, rank int) []candidate {
	n := 0
	for n < len(all) && all[n].refusal == "" && all[n].hasDevice && all[n].priority == all[0].priority && all[n].numaDistance == all[0].numaDistance &&
		all[n].providerInfo.Provider == all[0].providerInfo.Provider && all[n].providerInfo.Fabric == all[0].providerInfo.Fabric {
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

// assess returns the verdict about one entry of the library.
func assess(info *libfabric.Info, p *params, j jobTraits, t topology) candidate {
	_, local := quirkReason(info.Provider, AssumeNodeLocal, j.libraryVersion)
	c := candidate{providerInfo: info, isNodeLocal: info.IsLocalOnly || local}
	dir := t.device(lookupProvider(info.Provider), info.Domain)
	c.hasDevice = dir != ""
	c.priority = providerPriority(info.Provider, c.hasDevice)
	c.numaDistance, c.note = t.distance(dir, info.PCI, info.Domain)
	ip, isIP := ipOf(info.AddressFormat, info.Address)
	if isIP {
		if ip.IsLoopback() {
			c.isNodeLocal = true
		}
		if ip.Is6() { // More networks carry IPv4.
			c.numaDistance += defaultDistance / 2
		}
	}
	if c.isNodeLocal {
		c.numaDistance += 2 * defaultDistance // The job may grow to other nodes.
	}
	if len(p.DomainInclude) == 0 && netaddr.Secondary(t.interfaces, info.Domain) != "" {
		c.numaDistance += secondaryDistance
	}
	included := len(p.ProviderInclude) > 0
	wanted := !included || indexFold(p.ProviderInclude, info.Provider) >= 0
	// The self-test detects such a defect not always, or only by a timeout.
	if what, ok := quirkReason(info.Provider, RefuseProvider, j.libraryVersion); ok && wanted {
		c.isDefective = true
		c.refusal = fmt.Sprintf("defect of the provider in libfabric %v: %s (docs/provider-defects.md)", j.libraryVersion, what)
		return c
	}
	switch {
	case !wanted:
		c.refusal = "not in mtl.ofi.provider_include"
	case !included && indexFold(p.ProviderExclude, info.Provider) >= 0:
		c.refusal = "in mtl.ofi.provider_exclude"
	case len(p.DomainInclude) > 0 && !base.MatchesAny(p.DomainInclude, info.Domain):
		c.refusal = "its domain is not in mtl.ofi.domain_include"
	case len(p.DomainInclude) == 0 && base.MatchesAny(p.DomainExclude, info.Domain):
		c.refusal = "its domain is in mtl.ofi.domain_exclude"
	case c.isNodeLocal && !j.isOneNode:
		c.refusal = "it reaches only this node, and the job has processes on others"
	case isIP && ip.IsLinkLocalUnicast():
		c.refusal = "its address is valid on one link only"
	default:
		c.refusal = inconsistency(info)
	}
	return c
}

// minMaxMessage is the smallest acceptable message limit of a provider, in bytes.
const minMaxMessage = 4 << 10

// inconsistency returns a description of an impossible attribute of a provider, or "". Such a provider would fail its
// test by a timeout, or pass it and fail later.
func inconsistency(info *libfabric.Info) string {
	var system unix.Sysinfo_t
	memory := uint64(math.MaxUint64)
	if unix.Sysinfo(&system) == nil {
		memory = uint64(system.Totalram) * uint64(system.Unit)
	}
	switch width := tagWidth(info.TagFormat); {
	case info.RxSize < 1:
		return fmt.Sprintf("it reports a receive queue of %d entries (rx_attr.size)", info.RxSize)
	case info.TxSize < 1:
		return fmt.Sprintf("it reports a send queue of %d entries (tx_attr.size)", info.TxSize)
	case width < minTagBits+minCIDBits:
		return fmt.Sprintf("its tags have %d bits (mem_tag_format %#x), too few for communicator, source and tag", width, info.TagFormat)
	case info.Inject < 0 || uint64(info.Inject) > info.MaxMessage:
		return fmt.Sprintf("it reports that it copies messages of %d bytes (inject_size), and a limit of %d (max_msg_size)", info.Inject, info.MaxMessage)
	case info.MaxMessage < minMaxMessage:
		return fmt.Sprintf("it reports a limit of %d bytes for messages (max_msg_size)", info.MaxMessage)
	case uint64(info.Inject) > memory:
		return fmt.Sprintf("it reports that it copies messages of %d bytes (inject_size), and the machine has %d bytes of memory", info.Inject, memory)
	}
	return ""
}

// maxNamedDomains is the number of domains of a provider that an error lists.
const maxNamedDomains = 3

// summarize lists candidates by provider and reason, with their domains.
func summarize(all []candidate) string {
	var lines []string
	for i, c := range all {
		alike := func(d candidate) bool {
			return d.providerInfo.Provider == c.providerInfo.Provider && d.refusal == c.refusal
		}
		if slices.ContainsFunc(all[:i], alike) {
			continue
		}
		var domains []string
		for _, d := range all[i:] {
			if alike(d) && !slices.Contains(domains, d.providerInfo.Domain) {
				domains = append(domains, d.providerInfo.Domain)
			}
		}
		line := c.providerInfo.Provider + " on " + strings.Join(domains[:min(len(domains), maxNamedDomains)], ", ")
		if more := len(domains) - maxNamedDomains; more > 0 {
			line += fmt.Sprintf(" and %d more", more)
		}
		if c.refusal != "" {
			line += ": " + c.refusal
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "; ")
}

// describeMissed describes the candidates that users may expect instead of the chosen one, which may be nil: those that
// failed, and defective ones that are better or were requested. It returns "" if there are none.
func describeMissed(all []candidate, chosen *candidate, include []string) string {
	var out []candidate
	for _, c := range all {
		if c.hasFailed || c.isDefective && (chosen == nil && c.hasDevice || chosen != nil && c.priority < chosen.priority || indexFold(include, c.providerInfo.Provider) >= 0) {
			out = append(out, c)
		}
	}
	if len(out) == 0 {
		return ""
	}
	if chosen == nil {
		return "the network of this machine is not used: " + summarize(out)
	}
	return fmt.Sprintf("%v is used instead of %s", chosen.providerInfo, summarize(out))
}

// toCandidates converts candidates for a Description.
func toCandidates(all []candidate) []mtl.Candidate {
	out := make([]mtl.Candidate, len(all))
	for i, c := range all {
		out[i] = mtl.Candidate{Name: c.providerInfo.String(), Provider: c.providerInfo.Provider, Refused: c.refusal != "", Defect: c.isDefective, Failed: c.hasFailed, Reason: c.refusal}
		if c.refusal == "" {
			out[i].Reason = c.note
		}
	}
	return out
}

func indexFold(list []string, s string) int {
	return slices.IndexFunc(list, func(x string) bool { return strings.EqualFold(x, s) })
}
