package explain

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ferrympi/ferry/cmd/ferry/internal/text"
)

// pairs is a set of ordered pairs: the ends by the rank from which messages go there.
type pairs map[int][]end

// end is where messages go: a rank, and its job if that is another one.
type end struct {
	namespace string
	rank      int
}

// blocks describes the set: "0-3 x 0-3" is each of them to each other one, "0-3 x itself" each
// of them to itself.
func (p pairs) blocks() (out []string) {
	var itself []int
	others := map[string]map[int][]int{} // by namespace, and rank from which
	for from, ends := range p {
		for _, e := range ends {
			if e == (end{rank: from}) {
				itself = append(itself, from)
				continue
			}
			if others[e.namespace] == nil {
				others[e.namespace] = map[int][]int{}
			}
			others[e.namespace][from] = append(others[e.namespace][from], e.rank)
		}
	}
	for _, namespace := range slices.Sorted(maps.Keys(others)) {
		job := ""
		if namespace != "" {
			job = " of " + namespace
		}
		for _, b := range split(others[namespace], namespace == "") {
			out = append(out, text.Numbers(b.from)+" x "+text.Numbers(b.to)+job)
		}
	}
	if len(itself) > 0 {
		out = append(out, text.Numbers(itself)+" x itself")
	}
	return out
}

// String describes the set as far as somebody wants to read it: a full list of thousands hides
// what it is about.
func (p pairs) String() string {
	const most = 8
	list := p.blocks()
	if more := len(list) - most; more > 0 {
		list = append(list[:most:most], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(list, ", ")
}

// block is a set of pairs: from each of some ranks to each of some ranks.
type block struct{ from, to []int }

// split makes blocks of pairs. If both ends are of one job, a block says nothing of a rank and
// itself.
func split(pairs map[int][]int, oneJob bool) (blocks []block) {
	for _, from := range slices.Sorted(maps.Keys(pairs)) {
		slices.Sort(pairs[from])
		i := 0
		for i < len(blocks) && !blocks[i].take(from, pairs[from], oneJob) {
			i++
		}
		if i == len(blocks) {
			blocks = append(blocks, block{[]int{from}, pairs[from]})
		}
	}
	return blocks
}

// take adds a rank from which messages go to those ranks, if the block stays one.
func (b *block) take(from int, to []int, oneJob bool) bool {
	all := b.to
	if oneJob {
		all = slices.Compact(slices.Sorted(slices.Values(slices.Concat(b.to, to))))
		added := len(all) - len(b.to)
		// What the others don't reach yet can only be the one that there is itself.
		if added > 1 || added == 1 && (len(b.from) > 1 || !slices.Contains(all, b.from[0]) || slices.Contains(b.to, b.from[0])) {
			return false
		}
		to = slices.Clone(to)
		if i, found := slices.BinarySearch(all, from); found {
			if k, there := slices.BinarySearch(to, from); !there {
				to = slices.Insert(to, k, all[i])
			}
		}
	}
	if !slices.Equal(all, to) {
		return false
	}
	b.from, b.to = append(b.from, from), all
	return true
}
