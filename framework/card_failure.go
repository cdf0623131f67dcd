package framework

import (
	"slices"
	"strings"
	"unicode"
)

// failureEntry is the entry of a card with the reason why a transport of the process did not open.
const failureEntry = "failed"

// maxFailure bounds the bytes of that reason.
const maxFailure = 400

// FailureAddress returns the entry of a card for the reason why a transport that the process prefers did not open.
// Errors of other processes, which the choice of another transport leaves without a connection, contain it.
func FailureAddress(reason string) Address {
	return Address{Component: failureEntry, Blob: []byte(reason[:min(len(reason), maxFailure)])}
}

// Failure returns the reason of the card's FailureAddress as printable text, or "" without one.
func (c Card) Failure() string {
	i := slices.IndexFunc(c, func(a Address) bool { return a.Component == failureEntry })
	if i < 0 {
		return ""
	}
	text := string(c[i].Blob[:min(len(c[i].Blob), maxFailure)])
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(text, ""))
}
