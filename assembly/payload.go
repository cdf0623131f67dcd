package assembly

import (
	"fmt"
	"strings"

	"github.com/ferrympi/ferry/assembly/wireup"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

// encodeCard encodes the capabilities of the PMLs, and the card of the process.
func encodeCard(pmls []PML, card framework.Card) (capabilities, addresses []byte, err error) {
	var offers []pml.Capabilities
	for _, m := range pmls {
		offers = append(offers, m.Capabilities())
	}
	if capabilities, err = wireup.EncodeCapabilities(offers); err != nil {
		return nil, nil, err
	}
	addresses, err = wireup.EncodeCard(card)
	return capabilities, addresses, err
}

// encodePayload encodes a payload with the incarnation, the capabilities and the card of this process.
func (a *Assembly) encodePayload(card card, p wireup.Payload) ([]byte, error) {
	p.Nonce, p.Capabilities, p.Card, p.Edition = a.env.Self.Nonce, a.encodedCapabilities, card.encodedCard, card.edition
	return p.Encode()
}

// openFailures returns the members' transports that did not open, as the end of an error, or "" without any.
func openFailures(members []framework.Proc, payloads []wireup.Payload) string {
	const most = 4 // An example of each kind is usually among them.
	var text strings.Builder
	n := 0
	for i, p := range payloads {
		card, err := wireup.DecodeCard(p.Card)
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
