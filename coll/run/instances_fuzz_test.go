package run

import "testing"

// FuzzRecord decodes records of another rank. Each is an error or has a card of at most the size of a
// record.
func FuzzRecord(f *testing.F) {
	f.Add(make([]byte, openRecord), make([]byte, termsSize))
	f.Add(append([]byte{5}, "card"...), []byte{1})
	f.Fuzz(func(t *testing.T, in, terms []byte) {
		record, own := make([]byte, openRecord), make([]byte, openRecord)
		copy(record, in)
		copy(own[openRecord-termsSize:], terms)
		card, err := decodeRecord(record, own, 1, "shm")
		if err == nil && (len(card) > openRecord-termsSize-1 || cap(card) != len(card)) {
			t.Errorf("a card of %d bytes with room for %d", len(card), cap(card))
		}
	})
}
