package assembly

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/fxamacker/cbor/v2"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/strictcbor"
	"github.com/ferrympi/ferry/pml"
)

// payload is what each member of a new communicator gives to the group
// construct, as a CBOR array. Offers and Card are left encoded: members whose
// bytes are equal, or were seen before, need no decoding.
type payload struct {
	_       struct{} `cbor:",toarray"`
	Version uint8
	Nonce   uint64          // of the member's life
	Offers  cbor.RawMessage // []offer, the member's PMLs by preference
	Card    cbor.RawMessage // []address
	CID     []byte          // cid.Offer from the table of the first PML
	Edition uint32          // of Card: a later one has a larger number
	Ended   []endedPair     // members with whom the sender exchanges nothing any more
}

// endedPair is a member whom the sender has given up, or who has given up the sender.
type endedPair struct {
	_     struct{} `cbor:",toarray"`
	Rank  uint32   // in the group
	Nonce uint64   // of the life
	Times uint32   // how often the two have begun afresh
}

// payloadVersion changes with any of the types here.
const payloadVersion = 4

type offer struct {
	_        struct{} `cbor:",toarray"`
	PML      string
	Version  uint32
	Priority int32
	Detail   string
}

type address struct {
	_         struct{} `cbor:",toarray"`
	Component string
	Blob      []byte
}

// Limits of what a member may claim. They bound memory, and a program has a
// handful of each.
const (
	maxModules   = 16
	maxAddresses = 64
	maxText      = 1 << 10
	maxEnded     = 1024 // others have to wait for the next communicator
)

// codec is made at first use: importing ferry runs nothing.
var codec = sync.OnceValue(func() strictcbor.Codec { return strictcbor.New(maxEnded, cbor.UTF8RejectInvalid) })

// encodeCard encodes what the PMLs offer, and where the process is reached.
func encodeCard(pmls []PML, card framework.Card) (offers, addresses []byte, err error) {
	var os []offer
	for _, m := range pmls {
		o := m.Offer()
		os = append(os, offer{PML: o.PML, Version: o.Version, Priority: int32(o.Priority), Detail: o.Detail})
	}
	var as []address
	for _, a := range card {
		as = append(as, address{Component: a.Component, Blob: a.Blob})
	}
	if offers, err = codec().Marshal(os); err != nil {
		return nil, nil, err
	}
	if addresses, err = codec().Marshal(as); err != nil {
		return nil, nil, err
	}
	// What a peer would refuse must not leave this process either.
	if _, err := decodeOffers(offers); err != nil {
		return nil, nil, fmt.Errorf("this process's own offers: %w", err)
	}
	if _, err := decodeCard(addresses); err != nil {
		return nil, nil, fmt.Errorf("this process's own business card: %w", err)
	}
	return offers, addresses, nil
}

func (a *Assembly) encodePayload(card card, ended []endedPair, cid []byte) ([]byte, error) {
	return codec().Marshal(payload{
		Version: payloadVersion, Nonce: a.env.Self.Nonce, Offers: a.offers, Card: card.bytes, CID: cid, Edition: card.edition, Ended: ended,
	})
}

// decodePayload reads what another process wrote, down to offers and cards.
func decodePayload(b []byte) (payload, error) {
	var p payload
	if len(b) > bootstrap.MaxPayload {
		return p, fmt.Errorf("%d bytes, more than %d", len(b), bootstrap.MaxPayload)
	}
	// The version first: another one's array has other elements.
	var parts []cbor.RawMessage
	if err := codec().Unmarshal(b, &parts); err != nil {
		return p, err
	}
	if len(parts) > 0 && codec().Unmarshal(parts[0], &p.Version) == nil && p.Version != payloadVersion {
		return p, fmt.Errorf("version %d, and this program speaks %d: build all programs of a job with the same version of ferry", p.Version, payloadVersion)
	}
	if err := codec().Unmarshal(b, &p); err != nil {
		return p, err
	}
	if p.Nonce == 0 {
		return p, errors.New("a life without a nonce")
	}
	if len(p.Ended) > maxEnded {
		return p, fmt.Errorf("%d processes with whom nothing is exchanged, at most %d", len(p.Ended), maxEnded)
	}
	return p, nil
}

func decodeOffers(b []byte) ([]pml.Offer, error) {
	var raw []offer
	if err := codec().Unmarshal(b, &raw); err != nil {
		return nil, err
	}
	if len(raw) == 0 || len(raw) > maxModules {
		return nil, fmt.Errorf("%d offers, want 1 to %d", len(raw), maxModules)
	}
	out := make([]pml.Offer, len(raw))
	for i, o := range raw {
		if len(o.PML) == 0 || len(o.PML) > maxText || len(o.Detail) > maxText {
			return nil, errors.New("an offer's text is empty or too long")
		}
		out[i] = pml.Offer{PML: o.PML, Version: o.Version, Priority: int(o.Priority), Detail: o.Detail}
	}
	return out, nil
}

func decodeCard(b []byte) (framework.Card, error) {
	var raw []address
	if err := codec().Unmarshal(b, &raw); err != nil {
		return nil, err
	}
	if len(raw) > maxAddresses {
		return nil, fmt.Errorf("%d addresses, at most %d", len(raw), maxAddresses)
	}
	card := make(framework.Card, len(raw))
	for i, a := range raw {
		if len(a.Component) == 0 || len(a.Component) > maxText {
			return nil, errors.New("an address without a component, or with too long a name")
		}
		card[i] = framework.Address{Component: a.Component, Blob: a.Blob}
	}
	return card, nil
}

// sameOffer reports whether two offers can talk to each other. Priorities are each
// process's own affair.
func sameOffer(a, b pml.Offer) bool {
	return a.PML == b.PML && a.Version == b.Version && a.Detail == b.Detail
}

// choose returns the PML of a communicator: the offer that all members have, and
// that comes first on the whole in their lists; of equals the one whose name
// comes first. It is pure: all members choose alike. If there is none in common
// the error names who offers what.
func choose(members []framework.Proc, lists [][]pml.Offer) (pml.Offer, error) {
	var best pml.Offer
	bestSum := -1
candidates:
	for _, candidate := range lists[0] {
		sum := 0
		for _, list := range lists {
			at := slices.IndexFunc(list, func(o pml.Offer) bool { return sameOffer(o, candidate) })
			if at < 0 {
				continue candidates
			}
			sum += at
		}
		if bestSum < 0 || sum < bestSum || sum == bestSum && candidate.PML < best.PML {
			best, bestSum = candidate, sum
		}
	}
	if bestSum < 0 {
		return pml.Offer{}, noneCommon(members, lists)
	}
	return best, nil
}

func noneCommon(members []framework.Proc, lists [][]pml.Offer) error {
	const most = 4     // an example each is enough to find the difference
	var sides []string // distinct offers, in the order of the ranks
	who := map[string][]framework.Proc{}
	for i, list := range lists {
		texts := make([]string, len(list))
		for j, o := range list {
			texts[j] = fmt.Sprintf("%s (wire version %d%s)", o.PML, o.Version, clause(", %s", o.Detail))
		}
		side := strings.Join(texts, ", ")
		if who[side] == nil {
			sides = append(sides, side)
		}
		who[side] = append(who[side], members[i])
	}
	for i, side := range sides {
		sides[i] = fmt.Sprintf("%s: offered by %s", side, framework.ProcList(who[side], most))
	}
	return fmt.Errorf("%w: the members have no pml in common: %s", framework.ErrUnsupported, strings.Join(sides, "; "))
}

// failures returns the members' transports that did not open, as the end of an error, or "" without any.
func failures(members []framework.Proc, payloads []payload) string {
	const most = 4 // An example of each kind is usually among them.
	var text strings.Builder
	n := 0
	for i, p := range payloads {
		card, err := decodeCard(p.Card)
		if err != nil || card.Failure() == "" {
			continue
		}
		if n++; n <= most {
			fmt.Fprintf(&text, "; %v could not open %s", members[i], card.Failure())
		}
	}
	if n > most {
		fmt.Fprintf(&text, "; and %d more", n-most)
	}
	return text.String()
}
