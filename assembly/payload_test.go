package assembly

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/progress"
)

// paper is a PML that exists only as an offer and a card.
type paper struct {
	pml.Module
	offer pml.Offer
}

func (p paper) Offer() pml.Offer { return p.offer }

func somePayload(t testing.TB) []byte {
	a := &Assembly{Stack: &Stack{env: progress.Env{Self: framework.Life{Nonce: 7}}}}
	var err error
	a.offers, a.card.bytes, err = encodeCard([]PML{{"ob1", paper{offer: pml.Offer{PML: "ob1", Version: 1, Priority: 20}}}},
		framework.Card{{Component: "btl.shm", Blob: []byte("segment")}})
	if err != nil {
		t.Fatal(err)
	}
	b, err := a.encodePayload(a.card, nil, cid.NewTable(10).OfferFor(cid.PolicyAgree, 2, 1<<10).Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestPayloadComesBack(t *testing.T) {
	p, err := decodePayload(somePayload(t))
	if err != nil {
		t.Fatal(err)
	}
	offers, err := decodeOffers(p.Offers)
	if err != nil || len(offers) != 1 || offers[0] != (pml.Offer{PML: "ob1", Version: 1, Priority: 20}) {
		t.Errorf("%+v, %v", offers, err)
	}
	card, err := decodeCard(p.Card)
	if err != nil || len(card) != 1 || p.Nonce != 7 || string(card.Find(framework.BTL, "shm")) != "segment" {
		t.Errorf("%+v, %v", card, err)
	}
	if n := len(p.Offers) + len(p.Card) + len(p.CID); len(somePayload(t))-n > payloadFrame {
		t.Errorf("the frame takes %d bytes, more than payloadFrame", len(somePayload(t))-n)
	}
}

func TestPayloadThatIsNoneIsAnError(t *testing.T) {
	good := somePayload(t)
	for name, b := range map[string][]byte{
		"nothing":          nil,
		"too long":         make([]byte, bootstrap.MaxPayload+1),
		"cut":              good[:len(good)-1],
		"more behind":      append(bytes.Clone(good), 0),
		"another version":  append([]byte{good[0], payloadVersion + 1}, good[2:]...),
		"another type":     {0x60},
		"too few elements": {0x81, payloadVersion},
		"no nonce":         {0x87, payloadVersion, 0, 0x80, 0x80, 0x40, 0, 0x80},
	} {
		if _, err := decodePayload(b); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// A process of the version before, whose payload had four elements, is refused by
// its version, and not as garbage.
func TestAnotherVersionIsRefusedByItsName(t *testing.T) {
	_, err := decodePayload([]byte{0x84, 1, 0x80, 0x80, 0x40})
	if err == nil || !strings.Contains(err.Error(), "version 1, and this program speaks 4") {
		t.Error(err)
	}
}

func FuzzPayload(f *testing.F) {
	f.Add(somePayload(f))
	f.Add([]byte{0x85, 2, 1, 0x80, 0x80, 0x40})
	f.Add([]byte{0x9f, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := decodePayload(b)
		if err != nil {
			return
		}
		offers, err := decodeOffers(p.Offers)
		if err == nil && (len(offers) == 0 || len(offers) > maxModules) {
			t.Errorf("%d offers", len(offers))
		}
		if card, err := decodeCard(p.Card); err == nil && len(card) > maxAddresses {
			t.Errorf("%d addresses", len(card))
		}
	})
}

func TestOffersDecideTheCommonPML(t *testing.T) {
	ob1, cm, cm2 := pml.Offer{PML: "ob1", Version: 1}, pml.Offer{PML: "cm", Version: 1, Detail: "ofi"}, pml.Offer{PML: "cm", Version: 2, Detail: "ofi"}
	preferred := ob1
	preferred.Priority = 99
	members := []framework.Proc{{Namespace: "job", Rank: 0}, {Namespace: "job", Rank: 1}, {Namespace: "job", Rank: 2}}
	for name, c := range map[string]struct {
		lists [][]pml.Offer
		want  string
	}{
		"all have both, two prefer cm":     {[][]pml.Offer{{ob1, cm}, {cm, ob1}, {cm, ob1}}, "cm"},
		"one lacks cm":                     {[][]pml.Offer{{cm, ob1}, {cm, ob1}, {ob1}}, "ob1"},
		"priorities are each one's own":    {[][]pml.Offer{{preferred}, {ob1}, {ob1}}, "ob1"},
		"a draw goes to the name":          {[][]pml.Offer{{ob1, cm}, {cm, ob1}}, "cm"},
		"another version is another offer": {[][]pml.Offer{{cm, ob1}, {cm2, ob1}, {cm2, ob1}}, "ob1"},
	} {
		for turn := range c.lists { // whatever list comes first
			lists := append(append([][]pml.Offer(nil), c.lists[turn:]...), c.lists[:turn]...)
			if got, err := choose(members[:len(lists)], lists); err != nil || got.PML != c.want {
				t.Errorf("%s: %v, %v", name, got.PML, err)
			}
		}
	}
	_, err := choose(members, [][]pml.Offer{{ob1}, {cm}, {ob1}})
	if !errors.Is(err, framework.ErrUnsupported) || !strings.Contains(err.Error(), "rank 0, rank 2") ||
		!strings.Contains(err.Error(), "rank 1") || !strings.Contains(err.Error(), "ofi") {
		t.Errorf("none in common: %v", err)
	}
}

func TestEndedContextsGetTheirSentinels(t *testing.T) {
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

// TestProvidersThatDifferLeaveTheCommonPML: members whose networks do not understand
// one another take a PML that both have, and otherwise the error names both sides.
func TestProvidersThatDifferLeaveTheCommonPML(t *testing.T) {
	members := []framework.Proc{{Namespace: "job", Rank: 0}, {Namespace: "job", Rank: 1}}
	over := func(provider string) pml.Offer {
		return pml.Offer{PML: "cm", Version: 1, Detail: "mtl ofi: " + provider}
	}
	ob1 := pml.Offer{PML: "ob1", Version: 1}
	lists := [][]pml.Offer{{over("tcp;ofi_rxm"), ob1}, {over("sockets"), ob1}}
	if got, err := choose(members, lists); err != nil || got != ob1 {
		t.Errorf("%+v %v, want what both have", got, err)
	}
	if got, err := choose(members, [][]pml.Offer{lists[0], {ob1, over("tcp;ofi_rxm")}}); err != nil || got != over("tcp;ofi_rxm") {
		t.Errorf("%+v %v, want what comes first on the whole", got, err)
	}
	_, err := choose(members, [][]pml.Offer{{over("tcp;ofi_rxm")}, {over("sockets")}})
	if !errors.Is(err, framework.ErrUnsupported) {
		t.Fatal(err)
	}
	for _, want := range []string{"tcp;ofi_rxm", "sockets", "rank 0", "rank 1"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
}
