package assembly

import (
	"context"
	"errors"
	"testing"

	"github.com/ferrympi/ferry/assembly/wireup"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/progress"
)

// paper is a PML that exists only as an offer and a card.
type paper struct {
	pml.Module
	offer pml.Capabilities
}

func (p paper) Capabilities() pml.Capabilities { return p.offer }

func somePayload(t testing.TB) []byte {
	a := &Assembly{Stack: &Stack{env: progress.Env{Self: framework.Incarnation{Nonce: 7}}}}
	var err error
	a.encodedCapabilities, a.ownCard.encodedCard, err = encodeCard([]PML{{"ob1", paper{offer: pml.Capabilities{PML: "ob1", Version: 1, Priority: 20}}}},
		framework.Card{{Component: "btl.shm", Blob: []byte("segment")}})
	if err != nil {
		t.Fatal(err)
	}
	b, err := a.encodePayload(a.ownCard, wireup.Payload{IDs: cid.NewTable(10).WithholdCandidates(cid.PolicyAgree, 2, 1<<10).Bytes()})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestConstruct_ContextEnds_ReturnsItsSentinel(t *testing.T) {
	cause := errors.New("cause")
	canceled, cancel := context.WithCancelCause(context.Background())
	cancel(cause)
	late, stop := context.WithTimeout(context.Background(), -1)
	defer stop()
	other := errors.New("other")
	for name, c := range map[string]struct {
		got  error
		want []error
	}{
		"canceled":       {framework.Ended(canceled, "op", cause), []error{framework.ErrCanceled, cause}},
		"late":           {framework.Ended(late, "op", context.DeadlineExceeded), []error{framework.ErrTimeout, context.DeadlineExceeded}},
		"another reason": {framework.Ended(canceled, "op", other), []error{other}},
		"no context":     {framework.Ended(nil, "op", other), []error{other}},
	} {
		for _, want := range c.want {
			if !errors.Is(c.got, want) {
				t.Errorf("%s: %v is not %v", name, c.got, want)
			}
		}
	}
	if errors.Is(framework.Ended(canceled, "op", other), framework.ErrCanceled) || framework.Ended(canceled, "op", nil) != nil {
		t.Error("an error that the context did not cause is said to be canceled")
	}
}
