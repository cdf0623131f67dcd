package cm

import (
	"fmt"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/base"
)

// checkFit returns an error if the MTL cannot distinguish the ranks of a process, or has too few
// free ids for them. All members get the same result, except for ids that other communicators use. Lock held.
func (m *Module) checkFit(c *base.Comm[*proc]) error {
	if c.IsWhole() {
		return nil
	}
	if err := m.checkTagFormat(c.Len(), c.MostRanks(), c.HighestEndpoint()); err != nil {
		return err
	}
	ids := 1 << m.idLayout.indexBits
	if m.handleCounts[c.Spec.ID] > 0 { // The first handle was checked for all.
		return nil
	}
	_, live, quarantined := m.comms.Table.Counts()
	free := m.comms.Table.Free() + live + quarantined - len(m.comms.ByID) // Reserved ids count as free.
	if own := len(c.Ranks(c.Proc(c.Spec.Rank))); own > free {
		return fmt.Errorf("%w: pml cm: this process has %d ranks: %d of %d communicator ids of mtl %s are free, room for %d ranks: close communicators",
			framework.ErrUnsupported, own, free, ids, m.mtlName, free)
	}
	return nil
}

// FitsRanks implements pml.RankLimiter.
func (m *Module) FitsRanks(members pml.Members) error {
	counts, most, highest := map[framework.Incarnation]int{}, 0, uint16(0)
	for rank := range members.Len() {
		member := members.Member(rank)
		counts[member.Incarnation]++
		most, highest = max(most, counts[member.Incarnation]), max(highest, member.Endpoint)
	}
	return m.checkTagFormat(members.Len(), most, highest)
}

// checkTagFormat returns an error if the tag format has too few bits for a communicator with this number
// of ranks, this number of ranks in one process, and this highest endpoint.
func (m *Module) checkTagFormat(ranks, most int, highest uint16) error {
	caps, ids := &m.mtlCaps, 1<<m.idLayout.indexBits
	if !caps.MatchesRank && highest>>caps.EndpointBits != 0 {
		return fmt.Errorf("%w: pml cm: a process has endpoint %d: mtl %s (%s) has %d bits for endpoints, room for ranks 0 to %d of a process: %s",
			framework.ErrUnsupported, highest, m.mtlName, m.mtl.Describe().Mode, caps.EndpointBits, 1<<caps.EndpointBits-1, m.remedy(ranks, most))
	}
	if most > ids {
		return fmt.Errorf("%w: pml cm: a process has %d ranks: mtl %s (%s) has %d bits for ids, room for %d ranks of a process: %s",
			framework.ErrUnsupported, most, m.mtlName, m.mtl.Describe().Mode, caps.CIDBits, ids, m.remedy(ranks, most))
	}
	if most := int64(1) << caps.SourceBits; int64(ranks) > most {
		return fmt.Errorf("%w: pml cm: %d members: mtl %s (%s) has %d bits for ranks, room for %d: use fewer ranks",
			framework.ErrUnsupported, ranks, m.mtlName, m.mtl.Describe().Mode, caps.SourceBits, most)
	}
	return nil
}

// remedy returns the advice at the end of the errors above.
func (m *Module) remedy(ranks, most int) string {
	s := m.mtlCaps.RankSetting
	ids, err := newIDLayout(s.CIDBits)
	if s.Param == "" || err != nil || ranks > 1<<s.SourceBits || most > 1<<ids.indexBits {
		return "use more processes with fewer ranks each"
	}
	return "set " + s.Param + " in all processes"
}
