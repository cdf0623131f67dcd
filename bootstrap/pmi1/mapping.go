package pmi1

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// mappingKey is where a server says which ranks are on which node.
const mappingKey = "PMI_process_mapping"

// localRanks returns the ranks on the node of rank, ascending, as a server's process
// mapping places size of them: (vector,(NODE,NODES,RANKS),...) puts RANKS on each of
// NODES nodes from NODE on, and the list is gone through until all are placed, so that
// (vector,(0,1,1)) is one node for a job of any size.
func localRanks(mapping string, rank, size int) ([]uint32, error) {
	blocks, err := parseMapping(mapping)
	if err != nil {
		return nil, err
	}
	mine := -1
	// Once to find the node of rank, once to see who else is there.
	var locals []uint32
	eachRun(blocks, size, func(node, first, end int) {
		if first <= rank && rank < end {
			mine = node
		}
	})
	eachRun(blocks, size, func(node, first, end int) {
		if node != mine {
			return
		}
		for r := first; r < end; r++ {
			locals = append(locals, uint32(r))
		}
	})
	return slices.Clip(locals), nil
}

// block is (NODE,NODES,RANKS).
type block struct{ node, nodes, ranks int }

// eachRun calls f for each run of ranks [first, end) on one node.
func eachRun(blocks []block, size int, f func(node, first, end int)) {
	for next := 0; ; {
		for _, b := range blocks {
			for n := range b.nodes {
				if next == size {
					return
				}
				end := min(next+b.ranks, size)
				f(b.node+n, next, end)
				next = end
			}
		}
	}
}

// mostNodes limits the numbers of a mapping, so that sums of two can't overflow.
const mostNodes = 1 << 30

// parseMapping reads a mapping. Each block holds one rank at least.
func parseMapping(text string) ([]block, error) {
	rest, ok := strings.CutPrefix(text, "(vector,")
	rest, whole := strings.CutSuffix(rest, ")")
	if !ok || !whole || rest == "" {
		return nil, fmt.Errorf("process mapping %.80q: want (vector,(NODE,NODES,RANKS),...)", text)
	}
	var blocks []block
	for {
		inside, after, ok := strings.Cut(strings.TrimPrefix(rest, "("), ")")
		if !ok || rest[0] != '(' {
			return nil, fmt.Errorf("process mapping %.80q: block %d is cut short", text, len(blocks)+1)
		}
		b, ok := parseBlock(inside)
		if !ok {
			return nil, fmt.Errorf("process mapping %.80q: block %d is not (NODE,NODES,RANKS)", text, len(blocks)+1)
		}
		blocks = append(blocks, b)
		if after == "" {
			return blocks, nil
		}
		if rest, ok = strings.CutPrefix(after, ","); !ok || rest == "" {
			return nil, fmt.Errorf("process mapping %.80q: no comma after block %d", text, len(blocks))
		}
	}
}

func parseBlock(text string) (b block, ok bool) {
	parts := strings.Split(text, ",")
	if len(parts) != 3 {
		return b, false
	}
	for i, into := range []*int{&b.node, &b.nodes, &b.ranks} {
		n, err := strconv.Atoi(parts[i])
		if err != nil || n < 0 || n > mostNodes {
			return b, false
		}
		*into = n
	}
	return b, b.nodes > 0 && b.ranks > 0
}
