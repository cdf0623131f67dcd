// Package btltest is the conformance kit of BTLs. It opens the modules of several processes inside
// one, exchanges frames among them, and checks the claims of the contract in package btl. It also
// covers blocked receivers, damaged frames, invalid addresses and closing peers.
//
// The kit uses only the interfaces of a module and never sleeps to wait. A case polls the modules
// until its condition holds, within a deadline. Only the cases about sleep run the engine.
package btltest

import (
	"context"
	"errors"
	"slices"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework/kittest"
)

// Subject is the component under test.
type Subject struct {
	// Component opens the modules of all processes of a case.
	Component btl.Component
	// Params, if not nil, changes the parameters of the module of a rank before Open. They have
	// their defaults.
	Params func(rank int, params any)
	// First is the rank of the first process in its job (kittest.Job).
	First int
}

// claims are those of the contract, with the number of processes of each.
type claims = []kittest.Claim[int, *world]

// Cases returns the contract's claims about a subject.
func Cases(s Subject) kittest.Cases {
	return bind(s, slices.Concat(frameCases(), gatherCases(), pathCases(), sleepCases(), remoteCases()))
}

// IsSelfOnly reports whether the subject's modules serve only the process itself, for which Reach of
// another process returns btl.NotMeant. The error is that of Open.
func IsSelfOnly(ctx context.Context, s Subject) (alone bool, err error) {
	err = kittest.Run(ctx, func(t *kittest.T) {
		w := newWorld(t, s, 2)
		var not btl.NotMeant
		alone = errors.As(w.nodes[0].reach(w.nodes[1]), &not) && w.nodes[0].reach(w.nodes[0]) == nil
	})
	return alone, err
}

// RemoteCases returns only the claims about btl.RMA, for a transport with several copy
// methods that parameters force in turn.
func RemoteCases(s Subject) kittest.Cases { return bind(s, remoteCases()) }

func bind(s Subject, all claims) kittest.Cases {
	return kittest.Bind(all, func(t *kittest.T, size int) *world { return newWorld(t, s, size) })
}
