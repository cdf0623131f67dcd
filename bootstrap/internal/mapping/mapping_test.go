package mapping

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/bootstrap"
)

func TestParse_Mapping_PlacesEachRank(t *testing.T) {
	for _, c := range []struct {
		mapping string
		size    int
		// First, count and node of each run.
		want string
	}{
		{"(vector,(0,1,1))", 4, "[{0 4 0}]"}, // Four times from its beginning.
		{"(vector,(0,1,4))", 4, "[{0 4 0}]"},
		{"(vector,(0,1,8))", 4, "[{0 4 0}]"}, // More room than ranks.
		{"(vector,(0,2,2))", 4, "[{0 2 0} {2 2 1}]"},
		{"(vector,(0,2,2))", 7, "[{0 2 0} {2 2 1} {4 2 0} {6 1 1}]"},
		{"(vector,(0,2,1))", 5, "[{0 1 0} {1 1 1} {2 1 0} {3 1 1} {4 1 0}]"}, // Round robin.
		{"(vector,(0,1,2),(1,1,1),(0,1,1))", 5, "[{0 2 0} {2 1 1} {3 2 0}]"},
		{"(vector,(7,1,2),(5,1,1))", 3, "[{0 2 7} {2 1 5}]"},
		{"(vector,(0,1,1),(0,1,1))", 1, "[{0 1 0}]"},
		{"(vector,(0,1000000000,1))", 2, "[{0 1 0} {1 1 1}]"},
		{"(vector,(1073741824,1073741824,1))", 2, "[{0 1 1073741824} {1 1 1073741825}]"},
	} {
		got, err := Parse(c.mapping, c.size)
		if err != nil || fmt.Sprint(got) != c.want {
			t.Errorf("%s for %d ranks: got %v, %v, want %s", c.mapping, c.size, got, err, c.want)
		}
	}
}

func TestParse_NotAMapping_Fails(t *testing.T) {
	for _, m := range []string{
		"", "unknown", "(vector)", "(vector,", "(vector,)", "(vector,())", "(vector,(0,1))", "(vector,(0,1,1,1))", "(vector,(0,1,1)",
		"(vector,(0,0,1))", "(vector,(0,1,0))", "(vector,(-1,1,1))", "(vector,(0,1,x))", "(vector,(0,1,9999999999999999999))",
		"(vector,(0,1,1),)", "(vector,(0,1,1)(1,1,1))", "(vector,0,1,1)", "(matrix,(0,1,1))", "(vector,(0,1,1),(0", "(vector,(0,1,1)))",
		"(vector," + strings.Repeat("(0,1,1),", 120) + "(0,",
	} {
		if got, err := Parse(m, 2); err == nil {
			t.Errorf("%q is %v", m, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"(vector,(0,1,1))", "(vector,(0,2,2),(2,1,1))", "(vector,(0,1073741824,1073741824))", "(vector,("} {
		f.Add(s, uint8(4))
	}
	f.Fuzz(func(t *testing.T, text string, size uint8) {
		m, err := Parse(text, int(size))
		if err != nil {
			return
		}
		again, err := bootstrap.MakeNodeMap(0, int(size), m)
		if err != nil || !slices.Equal(again, m) {
			t.Errorf("%q for %d ranks: %v, %v", text, size, m, err)
		}
	})
}
