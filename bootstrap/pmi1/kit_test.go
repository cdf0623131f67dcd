package pmi1

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"testing"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/bootstraptest"
	"github.com/ferrympi/ferry/bootstrap/pmi1/pmi1test"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/needs"
)

// factory makes jobs of processes with the port of a server, and an exchange.
func factory(style pmi1test.Style, exchange string) bootstraptest.Factory {
	return func(ctx context.Context, want bootstraptest.Want) (*bootstraptest.Job, error) {
		if len(want.Psets) > 0 {
			return nil, fmt.Errorf("PMI-1 has no process sets: %w", bootstraptest.ErrSkip)
		}
		s, err := pmi1test.Start(pmi1test.Options{Size: want.Size, KVSName: "kvs_" + rand.Text(), Style: style, Mapping: "(vector,(0,1,1))"})
		if err != nil {
			return nil, err
		}
		job := &bootstraptest.Job{}
		// crash ends a process with its sockets.
		crash := func(c bootstrap.Client) error {
			p, ok := framework.As[interface{ Crash() error }](c)
			if !ok {
				return errors.New("the client can't crash")
			}
			return p.Crash()
		}
		job.Kill = func(rank int) error { return crash(job.Clients[rank]) }
		job.Close = func() error {
			var errs []error
			for _, c := range job.Clients {
				if err := c.Close(); !errors.Is(err, framework.ErrClosed) {
					errs = append(errs, err)
				}
				errs = append(errs, crash(c))
			}
			s.Close()
			for id := range want.Size {
				forget(serverAddress{fd: -1, port: s.Port(), pmiID: id})
			}
			return errors.Join(errs...)
		}
		for r := range want.Size {
			env := env(s, r, want.Timeout)
			env.Params.(*Params).Exchange = exchange
			c, err := Component().Open(ctx, env)
			if err != nil {
				return nil, errors.Join(err, job.Close())
			}
			job.Clients = append(job.Clients, c)
		}
		return job, nil
	}
}

func TestKit(t *testing.T) {
	for name, style := range styles {
		t.Run(name, func(t *testing.T) {
			if style != pmi1test.HydraNew {
				needs.Time(t)
			}
			bootstraptest.Cases(factory(style, "auto")).Run(t)
		})
	}
}

// PMI-1 serves one request of a process at a time, and barriers cannot be withdrawn.
const oneAtATime = bootstraptest.Overlap | bootstraptest.Names | bootstraptest.Withdrawal | bootstraptest.Deaths

func TestKitOverGroups(t *testing.T) {
	bootstraptest.Cases(bootstraptest.Without(oneAtATime, factory(pmi1test.HydraNew, "groups"))).Run(t)
}

func TestKitOverAll(t *testing.T) {
	for name, style := range styles {
		t.Run(name, func(t *testing.T) {
			if style != pmi1test.HydraNew {
				needs.Time(t)
			}
			bootstraptest.Cases(bootstraptest.Without(oneAtATime|bootstraptest.Subsets, factory(style, "all"))).Run(t)
		})
	}
}
