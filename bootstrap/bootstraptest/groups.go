package bootstraptest

import (
	"fmt"
	"slices"
	"sync"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
)

func groupCases() claimList {
	return claimList{
		kittest.New("SingleProcess", Want{Size: 1, Timeout: longTimeout}, (*job).singleProcess),
		kittest.New("GroupsTagsAndRoundsDoNotMix", Want{Size: 5, Timeout: longTimeout, Needs: Subsets | Overlap}, (*job).overlappingGroups),
		kittest.New("OrderIsPartOfGroup", Want{Size: 2, Timeout: shortTimeout, Needs: Names | Subsets}, (*job).orderIsPartOfGroup),
		kittest.New("SameGroupConcurrently", Want{Size: 3, Timeout: longTimeout, Needs: Overlap}, (*job).sameGroupConcurrently),
		kittest.New("FenceIsNoConstruct", Want{Size: 2, Timeout: longTimeout, Needs: Overlap}, (*job).fenceIsNoConstruct),
		kittest.New("InvalidGroups", Want{Size: 2, Timeout: longTimeout}, (*job).invalidGroups),
	}
}

// ids collects context ids, which must differ between constructs.
type ids struct {
	mu   sync.Mutex
	seen map[uint64]string
}

// add records the context id of a construct. Every member adds it once.
func (s *ids) add(j *job, id uint64, who string) {
	if id == 0 {
		j.Fatalf("construct %s got context id 0", who)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen == nil {
		s.seen = map[uint64]string{}
	}
	if other, ok := s.seen[id]; ok && other != who {
		j.Fatalf("constructs %s and %s have the same context id %d", other, who, id)
	}
	s.seen[id] = who
}

// count fails unless n constructs were recorded. A member with a different id would increase the
// number.
func (s *ids) count(j *job, n int) {
	if len(s.seen) != n {
		j.Fatalf("%d context ids for %d constructs", len(s.seen), n)
	}
}

func (j *job) singleProcess() {
	var seen ids
	for i := range 3 {
		j.fence(0, "t", 0)
		j.construct(0, []int{0}, "t", &seen, fmt.Sprint(i))
	}
	seen.count(j, 3)
}

// overlappingGroups runs several constructs of each process concurrently, with equal and different
// tags, repeatedly. Payloads are in the order of the group.
func (j *job) overlappingGroups() {
	groups := [][]int{{0, 1, 2, 3, 4}, {4, 3, 2, 1, 0}, {0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 0}, {0, 2, 4}, {1, 3, 0}, {1}}
	tags := []string{"a", "b"}
	const rounds = 30
	var seen ids
	j.Each(len(j.Clients)*len(groups)*len(tags), func(k int) {
		r, members, tag := k%len(j.Clients), groups[k/len(j.Clients)%len(groups)], tags[k/len(j.Clients)/len(groups)]
		for i := 0; i < rounds && slices.Contains(members, r); i++ {
			j.construct(r, members, tag, &seen, fmt.Sprintf("group %v tag %s round %d", members, tag, i))
		}
	})
	seen.count(j, rounds*len(groups)*len(tags))
}

func (j *job) orderIsPartOfGroup() {
	j.onAllRanks(func(r int) {
		err := j.Clients[r].Fence(j.Context(), j.group(r, 1-r), "t")
		j.checkMissing("fence of differently ordered groups", err, j.group(1-r), nil)
	})
}

// sameGroupConcurrently makes the same construct from two goroutines of each process. These are two
// instances, and each has one call of every member.
func (j *job) sameGroupConcurrently() {
	const rounds = 50
	var mu sync.Mutex
	calls := map[uint64]int{}
	j.Each(6, func(i int) {
		for range rounds {
			got, err := j.Clients[i/2].Construct(j.Context(), j.world(), "t", nil)
			j.Check(err)
			mu.Lock()
			calls[got.ContextID]++
			mu.Unlock()
		}
	})
	if len(calls) != 2*rounds {
		j.Fatalf("%d context ids for %d constructs", len(calls), 2*rounds)
	}
	for id, n := range calls {
		if n != 3 {
			j.Fatalf("context id %d went to %d calls, want one in each of 3 members", id, n)
		}
	}
}

func (j *job) fenceIsNoConstruct() {
	var seen ids
	j.Each(4, func(i int) {
		if r := i / 2; i%2 == 0 {
			j.fence(r, "t", 0, 1)
		} else {
			j.construct(r, []int{0, 1}, "t", &seen, "one")
		}
	})
}

func (j *job) invalidGroups() {
	c := j.Clients[0]
	ns := c.Identity().Proc.Namespace
	outsider := framework.Proc{Namespace: ns + "x", Rank: 1}
	beyond := framework.Proc{Namespace: ns, Rank: 1 << 31}
	for what, g := range map[string][]framework.Proc{
		"empty group":            nil,
		"caller is not a member": j.group(1),
		"member twice":           j.group(0, 1, 0),
		"process of another job": append(j.group(0), outsider),
		"rank beyond the job":    append(j.group(0), beyond),
		"only an outsider":       {outsider},
		"caller twice":           j.group(0, 0),
	} {
		_, err := c.Construct(j.Context(), g, "t", nil)
		j.Is(what+", construct", err, framework.ErrGroup)
		j.Is(what+", fence", c.Fence(j.Context(), g, "t"), framework.ErrGroup)
	}
	j.fenceAll("after") // The connection is unaffected.
}
