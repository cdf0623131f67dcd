package pmi1

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap/pmi1/pmi1test"
	"github.com/ferrympi/ferry/framework"
)

// Every group is constructed although its members have left the server, each process finalizes
// once, and none is killed.
func TestReopen_AfterFinalize_ReachesEveryProcess(t *testing.T) {
	for name, style := range styles {
		for _, mapping := range []string{"", "(vector,(0,1,4))", "(vector,(0,2,2))"} { // Unknown, one node, two.
			t.Run(name+mapping, func(t *testing.T) {
				s := server(t, pmi1test.Options{Style: style, KVSName: "kvs_" + rand.Text(), Mapping: mapping})
				t.Cleanup(func() { crashAll(t, s) })
				for _, ranks := range [][]int{{3}, {1}, {1, 3}, {0}, {2}, {3, 2, 1, 0}, {0, 2}, {0, 1, 2, 3}} {
					if err := together(t, s, ranks); err != nil {
						t.Fatalf("group %v: %v", ranks, err)
					}
				}
				if got := s.FinalizedRanks(); !slices.Equal(slices.Sorted(slices.Values(got)), []int{0, 1, 2, 3}) || len(s.Violations()) > 0 {
					t.Errorf("finalized %v, killed because of %q", got, s.Violations())
				}
			})
		}
	}
}

// together opens a client in each rank, constructs their group, and closes the clients.
func together(t *testing.T, s *pmi1test.Server, ranks []int) error {
	errs := make([]error, len(ranks))
	var wg sync.WaitGroup
	for i, rank := range ranks {
		wg.Go(func() {
			c, err := Component().Open(t.Context(), env(s, rank, time.Minute))
			if err != nil {
				errs[i] = err
				return
			}
			var group []framework.Proc
			for _, r := range ranks {
				group = append(group, framework.Proc{Namespace: c.Identity().Proc.Namespace, Rank: uint32(r)})
			}
			_, err = c.Construct(t.Context(), group, "t", nil)
			if err = errors.Join(err, c.Close()); err != nil {
				errs[i] = fmt.Errorf("rank %d: %w", rank, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// crashAll ends the processes of a server, with the sockets that outlast their clients.
func crashAll(t *testing.T, s *pmi1test.Server) {
	for rank := range 4 {
		c, err := Component().Open(context.Background(), env(s, rank, time.Minute))
		if err != nil {
			t.Error(err)
			continue
		}
		if p, ok := framework.As[interface{ Crash() error }](c); ok {
			c.Close()
			p.Crash()
		}
	}
}
