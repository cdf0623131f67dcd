package bootstraptest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
)

func groupCases() claims {
	return claims{
		kittest.Of("Alone", Want{Size: 1, Timeout: long}, alone),
		kittest.Of("PayloadsComeInTheGroupsOrder", Want{Size: 4, Timeout: long}, payloadOrder),
		kittest.Of("SameTagBackToBack", Want{Size: 4, Timeout: long}, backToBack),
		kittest.Of("OverlappingGroupsDoNotMix", Want{Size: 5, Timeout: long}, overlapping),
		kittest.Of("OrderOfTheGroupIsPartOfIt", Want{Size: 2, Timeout: short}, orderMatters),
		kittest.Of("SameGroupTwiceAtOnceFromOneProcess", Want{Size: 3, Timeout: long}, twiceAtOnce),
		kittest.Of("FenceIsNotAConstruct", Want{Size: 2, Timeout: long}, fenceAndConstruct),
		kittest.Of("InvalidGroups", Want{Size: 2, Timeout: long}, invalidGroups),
	}
}

// ids collects context ids that must all differ.
type ids struct {
	mu   sync.Mutex
	seen map[uint64]string
}

// add notes that the construct named who got id; every member adds it once.
func (s *ids) add(id uint64, who string) error {
	if id == 0 {
		return fmt.Errorf("construct %s got context id 0", who)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen == nil {
		s.seen = map[uint64]string{}
	}
	if other, ok := s.seen[id]; ok && other != who {
		return fmt.Errorf("constructs %s and %s have the same context id %d", other, who, id)
	}
	s.seen[id] = who
	return nil
}

// count fails unless n constructs were seen: a member with an id of its own
// would make it more.
func (s *ids) count(n int) error {
	if len(s.seen) != n {
		return fmt.Errorf("%d context ids for %d constructs", len(s.seen), n)
	}
	return nil
}

func alone(ctx context.Context, j *job) error {
	c := j.Clients[0]
	var seen ids
	for i := range 3 {
		if err := c.Fence(ctx, j.world(), "t"); err != nil {
			return err
		}
		got, err := c.Construct(ctx, j.world(), "t", []byte("mine"))
		if err != nil {
			return err
		}
		if len(got.Payloads) != 1 || string(got.Payloads[0]) != "mine" {
			return fmt.Errorf("payloads %q", got.Payloads)
		}
		if err := seen.add(got.ContextID, fmt.Sprint(i)); err != nil {
			return err
		}
	}
	return nil
}

// construct makes one for members, whose payloads say who and which.
func construct(ctx context.Context, j *job, c bootstrap.Client, members []int, tag string, seen *ids, who string) error {
	group := j.group(members...)
	pay := func(p framework.Proc) []byte { return fmt.Appendf(nil, "%s from %d", who, p.Rank) }
	got, err := c.Construct(ctx, group, tag, pay(c.Identity().Proc))
	if err != nil {
		return err
	}
	if len(got.Payloads) != len(group) {
		return fmt.Errorf("construct %s: %d payloads for %d members", who, len(got.Payloads), len(group))
	}
	for i, p := range group {
		if !bytes.Equal(got.Payloads[i], pay(p)) {
			return fmt.Errorf("construct %s: payload of %s is %q, want %q", who, p, got.Payloads[i], pay(p))
		}
	}
	return seen.add(got.ContextID, who)
}

func payloadOrder(ctx context.Context, j *job) error {
	var seen ids
	groups := [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {2, 0}, {1, 3, 0}, {1}}
	for i, g := range groups {
		err := each(g, func(r int) error { return construct(ctx, j, j.Clients[r], g, "t", &seen, fmt.Sprint(i)) })
		if err != nil {
			return err
		}
	}
	return seen.count(len(groups))
}

func backToBack(ctx context.Context, j *job) error {
	const rounds = 200
	var seen ids
	err := each(all(4), func(r int) error {
		for i := range rounds {
			if err := construct(ctx, j, j.Clients[r], all(4), "t", &seen, fmt.Sprint(i)); err != nil {
				return err
			}
		}
		return nil
	})
	return errors.Join(err, seen.count(rounds))
}

// overlapping has each process in several constructs at once, under equal and
// different tags.
func overlapping(ctx context.Context, j *job) error {
	groups := [][]int{{0, 1, 2, 3, 4}, {0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 0}, {0, 2, 4}, {1, 3}}
	tags := []string{"a", "b"}
	const rounds = 20
	var seen ids
	err := each(all(5), func(r int) error {
		var wg sync.WaitGroup
		errs := make([]error, len(groups)*len(tags))
		for g, members := range groups {
			for t, tag := range tags {
				if !slices.Contains(members, r) {
					continue
				}
				wg.Go(func() {
					for i := range rounds {
						who := fmt.Sprintf("group %v tag %s round %d", members, tag, i)
						if err := construct(ctx, j, j.Clients[r], members, tag, &seen, who); err != nil {
							errs[g*len(tags)+t] = err
							return
						}
					}
				})
			}
		}
		wg.Wait()
		return errors.Join(errs...)
	})
	return errors.Join(err, seen.count(rounds*len(groups)*len(tags)))
}

func orderMatters(ctx context.Context, j *job) error {
	return each(all(2), func(r int) error {
		err := j.Clients[r].Fence(ctx, j.group(r, 1-r), "t")
		return wantMissing("fence of differently ordered groups", err, j.group(1-r), nil)
	})
}

// twiceAtOnce: two goroutines of each process call the same construct; they are
// two instances, and each has one call of every member.
func twiceAtOnce(ctx context.Context, j *job) error {
	const rounds = 50
	var mu sync.Mutex
	calls := map[uint64]int{}
	err := each(all(6), func(i int) error {
		for range rounds {
			got, err := j.Clients[i/2].Construct(ctx, j.world(), "t", nil)
			if err != nil {
				return err
			}
			mu.Lock()
			calls[got.ContextID]++
			mu.Unlock()
		}
		return nil
	})
	if err != nil {
		return err
	}
	if len(calls) != 2*rounds {
		return fmt.Errorf("%d context ids for %d constructs", len(calls), 2*rounds)
	}
	for id, n := range calls {
		if n != 3 {
			return fmt.Errorf("context id %d went to %d calls, want one in each of 3 members", id, n)
		}
	}
	return nil
}

func fenceAndConstruct(ctx context.Context, j *job) error {
	var seen ids
	return each(all(2), func(r int) error {
		var wg sync.WaitGroup
		var fence, cons error
		wg.Go(func() { fence = j.Clients[r].Fence(ctx, j.world(), "t") })
		wg.Go(func() { cons = construct(ctx, j, j.Clients[r], all(2), "t", &seen, "one") })
		wg.Wait()
		return errors.Join(fence, cons)
	})
}

func invalidGroups(ctx context.Context, j *job) error {
	c := j.Clients[0]
	ns := c.Identity().Proc.Namespace
	stranger := framework.Proc{Namespace: ns + "x", Rank: 1}
	beyond := framework.Proc{Namespace: ns, Rank: 1 << 31}
	for what, g := range map[string][]framework.Proc{
		"empty group":             nil,
		"caller is no member":     j.group(1),
		"member twice":            j.group(0, 1, 0),
		"process of another job":  append(j.group(0), stranger),
		"rank beyond the job":     append(j.group(0), beyond),
		"nothing but a stranger":  {stranger},
		"caller and itself again": j.group(0, 0),
	} {
		_, err := c.Construct(ctx, g, "t", nil)
		if err := errors.Join(wantIs(what+", construct", err, framework.ErrGroup),
			wantIs(what+", fence", c.Fence(ctx, g, "t"), framework.ErrGroup)); err != nil {
			return err
		}
	}
	// The connection is as good as before.
	return each(all(2), func(r int) error { return j.Clients[r].Fence(ctx, j.world(), "after") })
}
