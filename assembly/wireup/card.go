package wireup

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/ferrympi/ferry/framework"
)

type address struct {
	_         struct{} `cbor:",toarray"`
	Component string
	Blob      []byte
}

// EncodeCard encodes a business card. Bytes that another process refuses are an error.
func EncodeCard(card framework.Card) ([]byte, error) {
	var list []address
	for _, a := range card {
		list = append(list, address{Component: a.Component, Blob: a.Blob})
	}
	b, err := codec().Marshal(list)
	if err == nil {
		_, err = DecodeCard(b)
	}
	if err != nil {
		return nil, fmt.Errorf("business card of this process: %w", err)
	}
	return b, nil
}

// DecodeCard is the reverse of EncodeCard.
func DecodeCard(b []byte) (framework.Card, error) {
	var list []address
	if err := codec().Unmarshal(b, &list); err != nil {
		return nil, err
	}
	if len(list) > maxAddresses {
		return nil, fmt.Errorf("%d addresses, at most %d", len(list), maxAddresses)
	}
	card := make(framework.Card, len(list))
	for i, a := range list {
		if len(a.Component) == 0 || len(a.Component) > maxText {
			return nil, errors.New("an address without a component, or with too long a name")
		}
		card[i] = framework.Address{Component: a.Component, Blob: a.Blob}
	}
	return card, nil
}

// FindAddress returns the bytes of the first address of a component in an encoded card, which are part of card, and whether there is
// one. The error is that of DecodeCard. It allocates no memory for a card of EncodeCard.
func FindAddress(card []byte, component string) (blob []byte, found bool, err error) {
	if blob, found, ok := scanCard(card, component); ok {
		return blob, found, nil
	}
	decoded, err := DecodeCard(card)
	for _, a := range decoded {
		if a.Component == component {
			return a.Blob, true, nil
		}
	}
	return nil, false, err
}

// scanCard is FindAddress for a card with the encoding of EncodeCard, and not ok for any other bytes.
func scanCard(b []byte, component string) (blob []byte, found, ok bool) {
	n, b, ok := head(b, majorArray)
	if !ok || n > maxAddresses {
		return nil, false, false
	}
	for range n {
		var pair int
		var name, value []byte
		if pair, b, ok = head(b, majorArray); !ok || pair != 2 {
			return nil, false, false
		}
		if name, b, ok = item(b, majorText); !ok || len(name) == 0 || len(name) > maxText || !utf8.Valid(name) {
			return nil, false, false
		}
		if value, b, ok = item(b, majorBytes); !ok {
			return nil, false, false
		}
		if !found && string(name) == component {
			blob, found = value, true
		}
	}
	return blob, found, len(b) == 0
}

// Major types of CBOR.
const (
	majorBytes = 2 << 5
	majorText  = 3 << 5
	majorArray = 4 << 5
)

// head splits the head of an item of a major type off b, and returns the argument. It is not ok if the argument has over 2 bytes.
func head(b []byte, major byte) (n int, rest []byte, ok bool) {
	if len(b) == 0 || b[0]&0xe0 != major {
		return 0, nil, false
	}
	switch low := b[0] & 0x1f; {
	case low < 24:
		return int(low), b[1:], true
	case low == 24 && len(b) > 1:
		return int(b[1]), b[2:], true
	case low == 25 && len(b) > 2:
		return int(binary.BigEndian.Uint16(b[1:])), b[3:], true
	}
	return 0, nil, false
}

// item splits a text or bytes off b.
func item(b []byte, major byte) (content, rest []byte, ok bool) {
	n, rest, ok := head(b, major)
	if !ok || n > len(rest) {
		return nil, nil, false
	}
	return rest[:n:n], rest[n:], true
}
