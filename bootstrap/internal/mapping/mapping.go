// Package mapping decodes the process mapping of PMI-1 and Slurm, which describes the nodes of a job.
package mapping

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/ferrympi/ferry/bootstrap"
)

// Parse returns the map of the nodes of a job of size ranks. The text (vector,(NODE,NODES,RANKS),...) places RANKS on each of
// NODES nodes from NODE on, and starts again at its beginning until all ranks have a node. So
// (vector,(0,1,1)) is one node for a job of any size.
func Parse(text string, size int) (bootstrap.NodeMap, error) {
	blocks, err := parseBlocks(text)
	if err != nil {
		return nil, err
	}
	var runs []bootstrap.NodeRun
	eachRun(blocks, size, func(node, first, end int) {
		if n := len(runs); n > 0 && runs[n-1].Node == uint32(node) {
			runs[n-1].Count += uint32(end - first)
			return
		}
		runs = append(runs, bootstrap.NodeRun{First: uint32(first), Count: uint32(end - first), Node: uint32(node)})
	})
	return bootstrap.MakeNodeMap(0, size, runs)
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

// mostNodes limits the numbers of a mapping, so that the sum of two is less than 1<<32.
const mostNodes = 1 << 30

// parseBlocks decodes a mapping. Each block has one rank at least.
func parseBlocks(text string) ([]block, error) {
	rest, ok := strings.CutPrefix(text, "(vector,")
	rest, whole := strings.CutSuffix(rest, ")")
	if !ok || !whole || rest == "" {
		return nil, fmt.Errorf("process mapping %.80q: want (vector,(NODE,NODES,RANKS),...)", text)
	}
	var blocks []block
	for {
		inside, after, ok := strings.Cut(strings.TrimPrefix(rest, "("), ")")
		if !ok || rest[0] != '(' {
			return nil, fmt.Errorf("process mapping %.80q: block %d is incomplete", text, len(blocks)+1)
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
