package cpu

import (
	"bytes"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestCopyShared_SizesAndAlignments_WritesExactBytes(t *testing.T) { checkCopies(t, CopyShared) }

func TestCopyPast_PartialLines_WritesExactBytes(t *testing.T) { checkCopies(t, CopyPast) }

func TestCopyOut_PartialBlocks_WritesExactBytes(t *testing.T) { checkCopies(t, copyOut) }

func copyOut(dst, src []byte) { CopyOut(dst, src) }

func checkCopies(t *testing.T, copies func(dst, src []byte)) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.OneOf(rapid.IntRange(0, 70), rapid.IntRange(1000, 1100), rapid.IntRange(4000, 4300), rapid.IntRange(0, 40000)).Draw(t, "n")
		at, from := rapid.IntRange(0, 63).Draw(t, "at"), rapid.IntRange(0, 63).Draw(t, "from")
		src := make([]byte, from+n)
		for i := range src {
			src[i] = byte(i*7 + 1)
		}
		dst := bytes.Repeat([]byte{0xee}, at+n+64)
		copies(dst[at:], src[from:])
		if !bytes.Equal(dst[at:at+n], src[from:]) {
			t.Fatal("the copy differs")
		}
		if !bytes.Equal(dst[:at], bytes.Repeat([]byte{0xee}, at)) || !bytes.Equal(dst[at+n:], bytes.Repeat([]byte{0xee}, 64)) {
			t.Fatal("something outside was written")
		}
	})
}

func TestCopies_ShortDestination_CopyItsLength(t *testing.T) {
	for _, copies := range []func(dst, src []byte){CopyShared, CopyPast, copyOut} {
		src := bytes.Repeat([]byte{1}, 25000)
		dst := make([]byte, 24000)
		copies(dst[:23000], src)
		if !bytes.Equal(dst[:23000], src[:23000]) || dst[23000] != 0 {
			t.Fatal("wrong bytes")
		}
	}
}

// If dst is a few bytes further in its page than src, the string copy of some processors is 28
// times slower.
func TestCopyShared_AliasedPages_KeepsSpeed(t *testing.T) {
	const n, maxRatio = 16 << 10, 8
	src, dst := make([]byte, 3*n), make([]byte, 3*n)
	least := func(to, from int) time.Duration {
		best := time.Hour
		for range 300 {
			start := time.Now()
			CopyShared(dst[to:], src[from:][:n])
			best = min(best, time.Since(start))
		}
		return best
	}
	usual := least(2048, 0)
	for _, at := range [][2]int{{0, 0}, {1, 0}, {8, 0}, {15, 0}, {16, 0}, {31, 0}, {32, 0}, {0, 1}, {0, 8}, {4104, 8}, {4112, 8}, {12, 4104}} {
		if elapsed := least(at[0], at[1]); elapsed > maxRatio*usual {
			t.Errorf("from byte %d to byte %d: %v, and %v half a page apart", at[1], at[0], elapsed, usual)
		}
	}
}
