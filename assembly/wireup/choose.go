package wireup

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

// Capability is encoded capabilities that some members have in common.
type Capability struct {
	_ struct{} `cbor:",toarray"`
	// See EncodeCapabilities.
	EncodedList []byte
	MemberCount uint32
	// At most mostExamples, ascending.
	LowestRanks []uint32
}

// mostExamples members of each kind are enough in an error.
const mostExamples = 4

// maxCapabilities bounds the number of different capabilities in a group. A job has one or two.
const maxCapabilities = 1024

// lowest returns the lowest ranks of both.
func lowest(a, b []uint32) []uint32 {
	if len(a) == mostExamples && a[mostExamples-1] < b[0] {
		return a
	}
	all := slices.Concat(a, b)
	slices.Sort(all)
	return all[:min(len(all), mostExamples)]
}

// AddCapability adds the members of c, which are not in the list, and returns the index of their capabilities.
func AddCapability(list []Capability, c Capability) ([]Capability, int) {
	i := slices.IndexFunc(list, func(m Capability) bool { return string(m.EncodedList) == string(c.EncodedList) })
	if i < 0 {
		return append(list, c), len(list)
	}
	list[i].MemberCount += c.MemberCount
	list[i].LowestRanks = lowest(list[i].LowestRanks, c.LowestRanks)
	return list, i
}

// Same reports whether two offers can communicate. Priorities are local to each process.
func Same(a, b pml.Capabilities) bool {
	return a.PML == b.PML && a.Version == b.Version && a.Detail == b.Detail
}

// Choose returns the PML of a communicator of members with these capabilities, in the order of their lowest ranks. It is the offer that all
// members have, with the least sum of indices in their lists. Of equal sums it is the first name. isFirst is set if it is the first
// offer of each member. Without a common offer the error, which wraps framework.ErrUnsupported, has the capabilities of both sides.
// name returns the process of a rank.
func Choose(capabilities []Capability, name func(rank uint32) framework.Proc) (chosen pml.Capabilities, isFirst bool, err error) {
	lists := make([][]pml.Capabilities, len(capabilities))
	for i, c := range capabilities {
		if lists[i], err = DecodeCapabilities(c.EncodedList); err != nil {
			return chosen, false, &framework.TransportError{Component: "assembly", Peer: name(c.LowestRanks[0]).String(), Op: "business card", Err: err}
		}
	}
	least := -1
candidates:
	for _, candidate := range lists[0] {
		sum := 0
		for i, list := range lists {
			at := slices.IndexFunc(list, func(o pml.Capabilities) bool { return Same(o, candidate) })
			if at < 0 {
				continue candidates
			}
			sum += at * int(capabilities[i].MemberCount)
		}
		if least < 0 || sum < least || sum == least && candidate.PML < chosen.PML {
			chosen, least = candidate, sum
		}
	}
	if least < 0 {
		return pml.Capabilities{}, false, noneCommon(capabilities, lists, name)
	}
	return chosen, least == 0, nil
}

func noneCommon(capabilities []Capability, lists [][]pml.Capabilities, name func(rank uint32) framework.Proc) error {
	var sides []string // Different offers, in the order of the ranks.
	members := map[string]Capability{}
	for i, list := range lists {
		texts := make([]string, len(list))
		for j, o := range list {
			texts[j] = fmt.Sprintf("%s (wire version %d)", o.PML, o.Version)
			if o.Detail != "" {
				texts[j] = fmt.Sprintf("%s (wire version %d, %s)", o.PML, o.Version, o.Detail)
			}
		}
		side := strings.Join(texts, ", ")
		m, ok := members[side]
		if !ok {
			sides = append(sides, side)
		}
		m.MemberCount += capabilities[i].MemberCount
		m.LowestRanks = lowest(m.LowestRanks, capabilities[i].LowestRanks)
		members[side] = m
	}
	for i, side := range sides {
		sides[i] = fmt.Sprintf("%s: offered by %s", side, nameSome(members[side].LowestRanks, int(members[side].MemberCount), name))
	}
	return fmt.Errorf("%w: the members have no pml in common: %s", framework.ErrUnsupported, strings.Join(sides, "; "))
}

// nameSome names the lowest of a number of ranks.
func nameSome(lowest []uint32, count int, name func(rank uint32) framework.Proc) string {
	var s []string
	for _, r := range lowest {
		s = append(s, name(r).String())
	}
	if more := count - len(lowest); more > 0 {
		s = append(s, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(s, ", ")
}
