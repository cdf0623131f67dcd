package pairtable

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ferrympi/ferry/internal/text"
)

// pairs is a set of ordered pairs, by the rank of the sender.
type pairs map[int][]end

// end is a receiver of messages, and the streams of a sender and of the receiver. 0 is the process itself.
type end struct {
	// Empty in the sender's job.
	namespace string
	rank      int
	streams   [2]int
}

// lane is the common part of the ends of a block.
type lane struct {
	namespace string
	streams   [2]int
}

func (l lane) compare(other lane) int {
	return cmp.Or(cmp.Compare(l.namespace, other.namespace), slices.Compare(l.streams[:], other.streams[:]))
}

// blocks describes the set: "0-3 x 0-3" is each of them to each other one, "0-3 x itself" each
// of them to itself, and "0-3 x 0-3 on streams 1-2" the same between the streams of these numbers.
func (p pairs) blocks() []string {
	itself := map[int][]int{}          // By stream.
	others := map[lane]map[int][]int{} // By lane, and rank of the sender.
	for from, ends := range p {
		for _, e := range ends {
			if own := e.streams[0]; e == (end{rank: from, streams: [2]int{own, own}}) {
				itself[own] = append(itself[own], from)
				continue
			}
			l := lane{e.namespace, e.streams}
			if others[l] == nil {
				others[l] = map[int][]int{}
			}
			others[l][from] = append(others[l][from], e.rank)
		}
	}
	var all described
	for _, l := range slices.SortedFunc(maps.Keys(others), lane.compare) {
		job := ""
		if l.namespace != "" {
			job = " of " + l.namespace
		}
		own, other := l.streams[0], l.streams[1]
		for _, b := range split(others[l], l.namespace == "" && own == other) {
			if own != other {
				all.add(text.Numbers(b.from)+StreamOf(own)+" x "+text.Numbers(b.to)+StreamOf(other)+job, 0)
				continue
			}
			all.add(text.Numbers(b.from)+" x "+text.Numbers(b.to)+job, own)
		}
	}
	for _, stream := range slices.Sorted(maps.Keys(itself)) {
		all.add(text.Numbers(itself[stream])+" x itself", stream)
	}
	return all.strings()
}

// StreamOf names a stream after the ranks of its processes.
func StreamOf(number int) string {
	if number == 0 {
		return ""
	}
	return fmt.Sprintf(" stream %d", number)
}

// described holds descriptions of blocks in order, each with the streams that have such a block.
type described struct {
	blockTexts    []string
	streamsByText map[string][]int
}

func (d *described) add(text string, stream int) {
	if d.streamsByText == nil {
		d.streamsByText = map[string][]int{}
	}
	if d.streamsByText[text] == nil {
		d.blockTexts = append(d.blockTexts, text)
	}
	d.streamsByText[text] = append(d.streamsByText[text], stream)
}

func (d *described) strings() (out []string) {
	for _, block := range d.blockTexts {
		streams := d.streamsByText[block]
		if streams[0] == 0 {
			out = append(out, block)
			streams = streams[1:]
		}
		switch len(streams) {
		case 0:
		case 1:
			out = append(out, fmt.Sprintf("%s on stream %d", block, streams[0]))
		default:
			out = append(out, fmt.Sprintf("%s on streams %s", block, text.Numbers(streams)))
		}
	}
	return out
}

// String describes the first blocks of the set and the number of the others.
func (p pairs) String() string {
	const most = 8
	list := p.blocks()
	if more := len(list) - most; more > 0 {
		list = append(list[:most:most], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(list, ", ")
}

// block is the set of pairs from each rank of one list to each rank of another.
type block struct{ from, to []int }

// split makes blocks of pairs. If both ends are of one job, no block includes the pair of a rank and itself.
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

// take adds the pairs of one sender, if the result is a block.
func (b *block) take(from int, to []int, oneJob bool) bool {
	all := b.to
	if oneJob {
		all = slices.Compact(slices.Sorted(slices.Values(slices.Concat(b.to, to))))
		added := len(all) - len(b.to)
		// The only rank that the other senders may lack is the sender that it is itself.
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
