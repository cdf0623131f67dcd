package assembly

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/ferrympi/ferry/assembly/wireup"
	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
)

func TestLearn_NonceOfAnotherProcess_ReturnsErrTransport(t *testing.T) {
	a, err := Open(t.Context(), Options{Settings: []framework.Setting{{Name: "pml", Value: "ob1"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	learn := func(rank uint32, nonce uint64) error {
		p := framework.Proc{Namespace: "other", Rank: rank}
		return a.learn(framework.Incarnation{ID: a.env.Worlds.ID(p), Nonce: nonce}, p, wireup.Payload{Nonce: nonce, Capabilities: a.encodedCapabilities, Card: a.ownCard.encodedCard})
	}
	if err := errors.Join(learn(1, 5), learn(2, 7), learn(1, 5), learn(1, 9)); err != nil {
		t.Fatal(err)
	}
	for _, nonce := range []uint64{7, a.env.Self.Nonce} {
		if err := learn(3, nonce); !errors.Is(err, framework.ErrTransport) {
			t.Errorf("a card with nonce %d: %v", nonce, err)
		}
	}
}

// scripted is a client of two members. Its group constructs run functions one after the other. It records calls of ReportBroken.
type scripted struct {
	*eventful
	group      []framework.Proc
	constructs []func(ctx context.Context, own []byte) (other []byte, err error)
	broken     []cid.Extended
}

func (s *scripted) Construct(ctx context.Context, _ []framework.Proc, _ string, own []byte) (bootstrap.Constructed, error) {
	next := s.constructs[0]
	s.constructs = s.constructs[1:]
	other, err := next(ctx, own)
	return bootstrap.Constructed{ContextID: 9, Payloads: [][]byte{own, other}}, err
}

func (s *scripted) ReportBroken(comm cid.Extended, members []framework.Proc, _ string) {
	if slices.Equal(members, s.group) {
		s.broken = append(s.broken, comm)
	}
}

// TestWireUp_FailsAfterTheConstruct_OthersAreNotified because the others may have created the communicator. If the
// construct itself fails, they have not.
func TestWireUp_FailsAfterTheConstruct_OthersAreNotified(t *testing.T) {
	reason := errors.New("the user's reason")
	for name, c := range map[string]struct {
		// As the other member has it.
		isDisconnected bool
		second         func(end context.CancelCauseFunc) error
		want           error
	}{
		"the context ends in the construct":               {false, nil, reason},
		"the context ends after the construct":            {false, func(end context.CancelCauseFunc) error { end(reason); return nil }, nil},
		"the context ends before members meet again":      {true, func(end context.CancelCauseFunc) error { end(reason); return nil }, reason},
		"a member fails before the members meet again":    {true, func(context.CancelCauseFunc) error { return framework.ErrProcFailed }, framework.ErrProcFailed},
		"the other member's payload is no payload at all": {false, func(context.CancelCauseFunc) error { return errGarbage }, framework.ErrTransport},
	} {
		t.Run(name, func(t *testing.T) {
			a, events := newHanging().open(t, nil)
			defer a.Close()
			s := &scripted{eventful: events, group: []framework.Proc{events.Identity().Proc, {Namespace: "other", Rank: 1}}}
			a.client = s
			ctx, end := context.WithCancelCause(t.Context())
			defer end(nil)
			s.constructs = append(s.constructs, func(ctx context.Context, own []byte) ([]byte, error) {
				if c.second == nil {
					end(reason)
					return nil, context.Cause(ctx)
				}
				p, failure := wireup.DecodePayload(own)
				if p.Nonce = 77; c.isDisconnected {
					p.Ended = []wireup.Ended{{Nonce: a.env.Self.Nonce}}
				} else if err := c.second(end); errors.Is(err, errGarbage) {
					return []byte{1}, nil
				}
				other, encodeErr := p.Encode()
				return other, errors.Join(failure, encodeErr)
			}, func(ctx context.Context, _ []byte) ([]byte, error) {
				return nil, cmp.Or(c.second(end), context.Cause(ctx))
			})
			_, spec, err := a.WireUp(ctx, s.group, 0, "test", cid.PolicyLazy)
			if !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			id := cid.Extended{Base: 9}
			isRefused := c.want != nil && c.second != nil
			if a.HasRefused(id) != isRefused || slices.Contains(s.broken, id) != isRefused || len(s.broken) > 1 {
				t.Errorf("%v has refused: %v; others are notified of %v, want %v", id, a.HasRefused(id), s.broken, isRefused)
			}
			if a.HasRefused(cid.Extended{Base: 10}) || (err == nil) != (spec.ID == id) {
				t.Errorf("got %+v", spec)
			}
		})
	}
}

var errGarbage = errors.New("garbage")
