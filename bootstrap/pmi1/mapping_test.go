package pmi1

import (
	"slices"
	"strings"
	"testing"
)

func TestMappingPlacesEveryRank(t *testing.T) {
	for _, c := range []struct {
		mapping    string
		rank, size int
		want       []uint32
	}{
		{"(vector,(0,1,1))", 2, 4, []uint32{0, 1, 2, 3}}, // gone through four times
		{"(vector,(0,1,4))", 0, 4, []uint32{0, 1, 2, 3}},
		{"(vector,(0,1,8))", 3, 4, []uint32{0, 1, 2, 3}}, // more room than ranks
		{"(vector,(0,2,2))", 2, 4, []uint32{2, 3}},
		{"(vector,(0,2,1))", 1, 5, []uint32{1, 3}}, // round robin
		{"(vector,(0,2,1))", 4, 5, []uint32{0, 2, 4}},
		{"(vector,(0,1,2),(1,1,1),(0,1,1))", 3, 5, []uint32{0, 1, 3, 4}},
		{"(vector,(7,1,2),(5,1,1))", 2, 3, []uint32{2}},
		{"(vector,(0,1,1),(0,1,1))", 0, 1, []uint32{0}},
		{"(vector,(0,1000000000,1))", 1, 2, []uint32{1}},
	} {
		got, err := localRanks(c.mapping, c.rank, c.size)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s, rank %d of %d: got %v, %v, want %v", c.mapping, c.rank, c.size, got, err, c.want)
		}
	}
}

func TestMappingThatIsNoneIsAnError(t *testing.T) {
	for _, m := range []string{
		"", "unknown", "(vector)", "(vector,", "(vector,)", "(vector,())", "(vector,(0,1))", "(vector,(0,1,1,1))", "(vector,(0,1,1)",
		"(vector,(0,0,1))", "(vector,(0,1,0))", "(vector,(-1,1,1))", "(vector,(0,1,x))", "(vector,(0,1,9999999999999999999))",
		"(vector,(0,1,1),)", "(vector,(0,1,1)(1,1,1))", "(vector,0,1,1)", "(matrix,(0,1,1))", "(vector,(0,1,1),(0", "(vector,(0,1,1)))",
		"(vector," + strings.Repeat("(0,1,1),", 120) + "(0,",
	} {
		if got, err := localRanks(m, 0, 2); err == nil {
			t.Errorf("%q places %v", m, got)
		}
	}
}

func FuzzMapping(f *testing.F) {
	for _, s := range []string{"(vector,(0,1,1))", "(vector,(0,2,2),(2,1,1))", "(vector,(0,1073741824,1073741824))", "(vector,("} {
		f.Add(s, uint8(1), uint8(4))
	}
	f.Fuzz(func(t *testing.T, mapping string, rank, size uint8) {
		if rank >= size {
			return
		}
		locals, err := localRanks(mapping, int(rank), int(size))
		if err != nil {
			return
		}
		if !slices.IsSorted(locals) || !slices.Contains(locals, uint32(rank)) || locals[len(locals)-1] >= uint32(size) {
			t.Errorf("%q, rank %d of %d: %v", mapping, rank, size, locals)
		}
	})
}
