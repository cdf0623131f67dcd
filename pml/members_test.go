package pml_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

// endpoints returns the members of processes with some endpoints each.
func endpoints(processes, each int) (all []pml.Member) {
	for p := range processes {
		for endpoint := range each {
			incarnation := framework.Incarnation{ID: framework.MakeProcID(0, uint32(p)), Nonce: uint64(p) + 1}
			all = append(all, pml.Member{Incarnation: incarnation, Endpoint: uint16(endpoint)})
		}
	}
	return all
}

func TestMembers_AnyOrder_RanksAreFound(t *testing.T) {
	for _, of := range []struct {
		processes, each int
		shuffle         bool
	}{{1, 1, false}, {5, 1, true}, {4, 3, true}, {100, 1, false}, {100, 1, true}, {20, 7, true}} {
		t.Run(fmt.Sprintf("%+v", of), func(t *testing.T) {
			list := endpoints(of.processes, of.each)
			if of.shuffle {
				rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
			}
			members := pml.NewMembers(list)
			for rank, m := range list {
				if got := members.Rank(m); got != rank {
					t.Errorf("%+v has rank %d, not %d", m, got, rank)
				}
				if first := members.First(m.ID); first < 0 || list[first] != (pml.Member{Incarnation: m.Incarnation}) {
					t.Errorf("the first rank of %v is %d", m.Incarnation, first)
				}
				m.Nonce += 1000
				if got := members.Rank(m); got != -1 {
					t.Errorf("another incarnation has rank %d", got)
				}
				m.Nonce, m.Endpoint = m.Nonce-1000, 100
				if got := members.Rank(m); got != -1 {
					t.Errorf("endpoint 100 has rank %d", got)
				}
			}
			if got := members.First(framework.MakeProcID(0, 500)); got != -1 {
				t.Errorf("another process has rank %d", got)
			}
			if got := members.First(framework.MakeProcID(1, 0)); got != -1 {
				t.Errorf("a process of another job has rank %d", got)
			}
		})
	}
}
