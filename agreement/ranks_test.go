package agreement

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestRanks_AnyAscendingList_IsDecodedAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.SampledFrom([]int{8, 300, maxMembers - 1}).Draw(t, "most")
		r := Ranks(rapid.SliceOfNDistinct(rapid.IntRange(0, most), 0, min(most, 200), rapid.ID).Draw(t, "ranks"))
		slices.Sort(r)
		b, err := r.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		var again Ranks
		if err := again.UnmarshalBinary(b); err != nil || !slices.Equal(again, r) {
			t.Fatalf("%v is decoded as %v, %v", r, again, err)
		}
	})
}

func TestRanks_Encoding_IsTheShorterForm(t *testing.T) {
	all, odd := make(Ranks, 200_000), Ranks(nil)
	for r := range all {
		all[r] = r
		if r%2 == 1 {
			odd = append(odd, r)
		}
	}
	for name, c := range map[string]struct {
		ranks Ranks
		most  int
	}{"all": {all, 5}, "every second one": {odd, 200_000/8 + 5}, "one": {Ranks{199_999}, 5}, "none": {nil, 0}} {
		if b, err := c.ranks.MarshalBinary(); err != nil || len(b) > c.most {
			t.Errorf("%s: %d bytes, %v, want at most %d", name, len(b), err, c.most)
		}
	}
}

func TestRanks_MalformedEncoding_IsRejected(t *testing.T) {
	for name, b := range map[string][]byte{
		"unknown form":             {7},
		"runs without one":         {formRuns},
		"half a run":               {formRuns, 3},
		"cut number":               {formRuns, 3, 0x80},
		"empty run":                {formRuns, 3, 0},
		"two adjacent runs":        {formRuns, 3, 1, 0, 1},
		"number of needless bytes": {formRuns, 0x83, 0, 1},
		"rank over the limit":      {formRuns, 0x80, 0x80, 0x40, 1},
		"run over the limit":       {formRuns, 1, 0x80, 0x80, 0x40},
		"bitmap without bits":      {formBitmap, 3},
		"bitmap in place of runs":  {formBitmap, 3, 1},
		"trailing zeros":           {formBitmap, 3, 0x55, 0x55, 0x55, 0x55, 0x55, 0},
		"first bit is zero":        {formBitmap, 3, 0x54, 0x55, 0x55, 0x55, 0x55},
	} {
		var r Ranks
		if err := r.UnmarshalBinary(b); err == nil {
			t.Errorf("%s is decoded as %v", name, r)
		}
	}
}

// FuzzRanks decodes arbitrary bytes.
func FuzzRanks(f *testing.F) {
	for _, r := range []Ranks{nil, {0}, {1, 2, 3, 900}, {0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28}} {
		b, err := r.MarshalBinary()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var r Ranks
		if r.UnmarshalBinary(b) != nil {
			return
		}
		if err := checkRanks(maxMembers, r); err != nil {
			t.Error(err)
		}
	})
}
