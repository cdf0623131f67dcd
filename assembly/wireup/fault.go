package wireup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ferrympi/ferry/framework"
)

// FaultKind is the reason why a creation fails. Of two faults of a rank, the one of the higher kind is kept.
type FaultKind uint8

const (
	Missing     FaultKind = iota + 1 // The member has not joined in time.
	Canceled                         // The context of the member has ended.
	Unsupported                      // The members have no PML or id in common, or a limit is exceeded.
	Garbage                          // The member has sent invalid bytes, or cannot be reached.
	Failed                           // The member has failed or left.
	faultKinds
)

// Fault is a reason why a creation fails, and the member that it concerns.
type Fault struct {
	_    struct{} `cbor:",toarray"`
	Rank uint32   // In the job.
	Kind FaultKind
	// Reason, for Unsupported and Garbage, and a note for Missing.
	Text string
}

// silentText is the text of Missing for a member that has joined a level, and has sent no message in time.
const silentText = "joined, and is silent"

// mayDiffer reports whether another map or another value of bootstrap.roots_from can be the reason of a fault. Such members never join the
// same level.
func (f Fault) mayDiffer() bool { return f.Kind == Missing && f.Text != silentText }

// Faults are at most maxFaults, of the lowest ranks, ascending, one for each rank.
type Faults []Fault

const (
	maxFaults    = 64
	maxFaultText = 1 << 10
)

// merge returns the faults of both. It is associative and commutative.
func (fs Faults) merge(other Faults) Faults {
	all := slices.Concat(fs, other)
	slices.SortFunc(all, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), -cmp.Compare(a.Kind, b.Kind), strings.Compare(a.Text, b.Text))
	})
	all = slices.CompactFunc(all, func(a, b Fault) bool { return a.Rank == b.Rank })
	return slices.Clip(all[:min(len(all), maxFaults)])
}

// check returns an error for faults that another process sent and that merge cannot return.
func (fs Faults) check() error {
	if len(fs) > maxFaults {
		return fmt.Errorf("%d faults, at most %d", len(fs), maxFaults)
	}
	for i, f := range fs {
		if f.Kind == 0 || f.Kind >= faultKinds || len(f.Text) > maxFaultText || i > 0 && f.Rank <= fs[i-1].Rank {
			return fmt.Errorf("fault %d of rank %d has kind %d and %d bytes of text", i, f.Rank, f.Kind, len(f.Text))
		}
	}
	return nil
}

// fault returns a single fault. The text is shortened to the limit of messages.
func fault(rank uint32, kind FaultKind, text string) Faults {
	return Faults{{Rank: rank, Kind: kind, Text: strings.ToValidUTF8(text[:min(len(text), maxFaultText)], "")}}
}

// err returns the error of a creation with that tag, in the namespace of the members.
func (fs Faults) err(namespace, tag string) error {
	m := &framework.MissingError{Op: "group construct", Tag: tag}
	var notes []string
	var others []error
	for _, f := range fs {
		p := framework.Proc{Namespace: namespace, Rank: f.Rank}
		switch f.Kind {
		case Missing:
			m.Missing = append(m.Missing, p)
			switch f.Text {
			case "":
			case silentText:
				notes = append(notes, fmt.Sprintf("%v has joined, and its next message has not come", p))
			default:
				notes = append(notes, fmt.Sprintf("%v has not connected with other nodes, and %s", p, f.Text))
			}
		case Canceled:
			m.Missing = append(m.Missing, p)
			notes = append(notes, fmt.Sprintf("%v has canceled its call", p))
		case Failed:
			m.Failed = append(m.Failed, p)
		case Unsupported:
			others = append(others, fmt.Errorf("%w: %s", framework.ErrUnsupported, strings.TrimPrefix(f.Text, framework.ErrUnsupported.Error()+": ")))
		default:
			others = append(others, &framework.TransportError{Component: "assembly", Peer: p.String(), Op: "wire-up", Err: errors.New(f.Text)})
		}
	}
	var err error
	if len(m.Missing) > 0 || len(m.Failed) > 0 {
		err = m
		if len(notes) > 0 {
			err = fmt.Errorf("%w; %s", m, strings.Join(notes, ", "))
		}
	}
	return errors.Join(append([]error{err}, others...)...)
}

// faultsOf returns the faults of a failed construct or message. The peer is the member at the other end, or the caller.
func faultsOf(err error, peer, self uint32) Faults {
	var fs Faults
	if m, ok := errors.AsType[*framework.MissingError](err); ok {
		for _, p := range m.Missing {
			fs = append(fs, Fault{Rank: p.Rank, Kind: Missing})
		}
		for _, p := range m.Failed {
			fs = append(fs, Fault{Rank: p.Rank, Kind: Failed})
		}
		if len(fs) > 0 {
			return Faults(nil).merge(fs)
		}
	}
	switch {
	case errors.Is(err, framework.ErrClosed):
		return fault(self, Canceled, "")
	case errors.Is(err, framework.ErrProcFailed) || errors.Is(err, framework.ErrPeerClosed):
		return fault(peer, Failed, "")
	case errors.Is(err, framework.ErrTimeout) || errors.Is(err, context.DeadlineExceeded):
		return fault(peer, Missing, "")
	case errors.Is(err, framework.ErrUnsupported):
		return fault(self, Unsupported, err.Error())
	}
	return fault(peer, Garbage, err.Error())
}
