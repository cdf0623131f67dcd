package bootstraptest

import (
	"fmt"
	"slices"
	"sync"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
)

func groupCases() claims {
	return claims{
		kittest.New("Alone", Want{Size: 1, Timeout: long}, (*job).alone),
		kittest.New("GroupsTagsAndRoundsDoNotMix", Want{Size: 5, Timeout: long, Needs: Subsets | Overlap}, (*job).overlapping),
		kittest.New("OrderOfTheGroupIsPartOfIt", Want{Size: 2, Timeout: short, Needs: Names | Subsets}, (*job).orderMatters),
		kittest.New("SameGroupTwiceAtOnceFromOneProcess", Want{Size: 3, Timeout: long, Needs: Overlap}, (*job).twiceAtOnce),
		kittest.New("FenceIsNotAConstruct", Want{Size: 2, Timeout: long, Needs: Overlap}, (*job).fenceAndConstruct),
		kittest.New("InvalidGroups", Want{Size: 2, Timeout: long}, (*job).invalidGroups),
	}
}

// ids collects context ids that must all differ.
type ids struct {
	mu   sync.Mutex
	seen map[uint64]string
}

// add notes that the construct named who got id; every member adds it once.
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

// count fails unless n constructs were seen: a member with an id of its own
// would make it more.
func (s *ids) count(j *job, n int) {
	if len(s.seen) != n {
		j.Fatalf("%d context ids for %d constructs", len(s.seen), n)
	}
}

func (j *job) alone() {
	var seen ids
	for i := range 3 {
		j.fence(0, "t", 0)
		j.construct(0, []int{0}, "t", &seen, fmt.Sprint(i))
	}
	seen.count(j, 3)
}

// overlapping has each process in several constructs at once, under equal and
// different tags, and again and again under the same one. Payloads come in the order of
// the group, whatever that is.
func (j *job) overlapping() {
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

func (j *job) orderMatters() {
	j.all(func(r int) {
		err := j.Clients[r].Fence(j.Context(), j.group(r, 1-r), "t")
		j.missing("fence of differently ordered groups", err, j.group(1-r), nil)
	})
}

// twiceAtOnce: two goroutines of each process call the same construct; they are
// two instances, and each has one call of every member.
func (j *job) twiceAtOnce() {
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

func (j *job) fenceAndConstruct() {
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
	stranger := framework.Proc{Namespace: ns + "x", Rank: 1}
	beyond := framework.Proc{Namespace: ns, Rank: 1 << 31}
	for what, g := range map[string][]framework.Proc{
		"empty group":            nil,
		"caller is not a member": j.group(1),
		"member twice":           j.group(0, 1, 0),
		"process of another job": append(j.group(0), stranger),
		"rank beyond the job":    append(j.group(0), beyond),
		"only a stranger":        {stranger},
		"caller twice":           j.group(0, 0),
	} {
		_, err := c.Construct(j.Context(), g, "t", nil)
		j.Is(what+", construct", err, framework.ErrGroup)
		j.Is(what+", fence", c.Fence(j.Context(), g, "t"), framework.ErrGroup)
	}
	j.meet("after") // the connection is as good as before
}
