package cpu

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

// TestCopySharedWritesExactlyTheSource at all alignments and around the size from
// which it copies in another way.
func TestCopySharedWritesExactlyTheSource(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.OneOf(rapid.IntRange(0, 70), rapid.IntRange(1000, 1100), rapid.IntRange(0, 40000)).Draw(t, "n")
		at, from := rapid.IntRange(0, 63).Draw(t, "at"), rapid.IntRange(0, 63).Draw(t, "from")
		src := make([]byte, from+n)
		for i := range src {
			src[i] = byte(i*7 + 1)
		}
		dst := bytes.Repeat([]byte{0xee}, at+n+64)
		CopyShared(dst[at:], src[from:])
		if !bytes.Equal(dst[at:at+n], src[from:]) {
			t.Fatal("the copy differs")
		}
		if !bytes.Equal(dst[:at], bytes.Repeat([]byte{0xee}, at)) || !bytes.Equal(dst[at+n:], bytes.Repeat([]byte{0xee}, 64)) {
			t.Fatal("something outside was written")
		}
	})
}

// TestCopySharedIntoLessRoomCopiesWhatFits, as copy does.
func TestCopySharedIntoLessRoomCopiesWhatFits(t *testing.T) {
	src := bytes.Repeat([]byte{1}, 5000)
	dst := make([]byte, 4000)
	CopyShared(dst[:3000], src)
	if !bytes.Equal(dst[:3000], src[:3000]) || dst[3000] != 0 {
		t.Fatal("wrong bytes")
	}
}
