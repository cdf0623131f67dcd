package wireup

import (
	"cmp"
	"encoding/binary"
	"hash/fnv"
	"slices"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
)

// BlockSize is the largest number of members of a level above 0. Its construct sends BlockSize
// payloads to BlockSize members.
const BlockSize = 64

// Layout is a group by nodes. It is immutable, and equal in all members that have equal groups and maps.
type Layout struct {
	namespace   string
	memberCount int
	// In the order of the group.
	stretches []stretch
	// First member of each node, ascending.
	nodeRoots []int
	groupHash uint64
}

// stretch is consecutive members on one node.
type stretch struct {
	framework.ProcRun
	// Its rank in the group.
	firstMember int
	node        uint32
}

// NewLayout returns the layout of a group by the map of the processes of a namespace. It is nil if the map lacks a member.
func NewLayout(group framework.Procs, namespace string, nodes bootstrap.NodeMap) *Layout {
	l := &Layout{namespace: namespace}
	for r := range group.Runs() {
		if r.Namespace != namespace || !l.add(r, nodes) {
			return nil
		}
	}
	seen := map[uint32]bool{}
	sum := fnv.New64a()
	for _, s := range l.stretches {
		if !seen[s.node] {
			seen[s.node] = true
			l.nodeRoots = append(l.nodeRoots, s.firstMember)
		}
		var b [16]byte
		binary.LittleEndian.PutUint32(b[:], s.node)
		binary.LittleEndian.PutUint32(b[4:], s.First)
		binary.LittleEndian.PutUint32(b[8:], uint32(s.Stride))
		binary.LittleEndian.PutUint32(b[12:], s.Count)
		sum.Write(b[:])
	}
	l.groupHash = sum.Sum64()
	return l
}

// add divides a run into stretches. It reports whether the map has all the ranks.
func (l *Layout) add(r framework.ProcRun, nodes bootstrap.NodeMap) bool {
	for i := 0; i < int(r.Count); {
		first := r.At(i).Rank
		n, found := slices.BinarySearchFunc(nodes, first, func(n bootstrap.NodeRun, rank uint32) int { return cmp.Compare(n.First, rank) })
		if !found {
			n--
		}
		if n < 0 || first-nodes[n].First >= nodes[n].Count {
			return false
		}
		count := 1
		switch stride := int(r.Stride); {
		case stride > 0:
			count += (int(nodes[n].First) + int(nodes[n].Count) - 1 - int(first)) / stride
		case stride < 0:
			count += (int(first) - int(nodes[n].First)) / -stride
		}
		count = min(count, int(r.Count)-i)
		run := framework.ProcRun{Namespace: r.Namespace, First: first, Stride: r.Stride, Count: uint32(count)}
		l.stretches = append(l.stretches, stretch{run, l.memberCount, nodes[n].Node})
		i += count
		l.memberCount += count
	}
	return true
}

// Size returns the number of members.
func (l *Layout) Size() int { return l.memberCount }

// Nodes returns the number of nodes.
func (l *Layout) Nodes() int { return len(l.nodeRoots) }

// Proc returns the process of a member.
func (l *Layout) Proc(member int) framework.Proc {
	s := l.at(member)
	return s.At(member - s.firstMember)
}

func (l *Layout) at(member int) stretch {
	i, found := slices.BinarySearchFunc(l.stretches, member, func(s stretch, member int) int { return cmp.Compare(s.firstMember, member) })
	if !found {
		i--
	}
	return l.stretches[i]
}

// Key returns a number that differs with high probability if the layouts, the tags or the values of bootstrap.roots_from of two
// members differ. The tags of the levels contain it.
func (l *Layout) Key(tag string, rootsFrom int) uint64 {
	sum := fnv.New64a()
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:], l.groupHash)
	binary.LittleEndian.PutUint64(b[8:], uint64(rootsFrom))
	sum.Write(b[:])
	sum.Write([]byte(tag))
	return sum.Sum64()
}

// Level is a block of the tree that a member belongs to.
type Level struct {
	// 0 for the members of one node.
	Number int
	// Ranks in the group, ascending.
	Members []int
	// Of the member, in Members.
	SelfIndex int
}

// Levels returns the levels of a member, from 0 up. It is first in all but the last of them.
func (l *Layout) Levels(member int) []Level {
	node := l.at(member).node
	var mates []int
	for _, s := range l.stretches {
		if s.node != node {
			continue
		}
		for i := range int(s.Count) {
			mates = append(mates, s.firstMember+i)
		}
	}
	self, _ := slices.BinarySearch(mates, member)
	levels := []Level{{Members: mates, SelfIndex: self}}
	index, _ := slices.BinarySearch(l.nodeRoots, member)
	for count, step := len(l.nodeRoots), 1; self == 0; step *= BlockSize {
		first := index - index%BlockSize
		block := make([]int, 0, BlockSize)
		for i := first; i < min(first+BlockSize, count); i++ {
			block = append(block, l.nodeRoots[i*step])
		}
		self = index - first
		levels = append(levels, Level{Number: len(levels), Members: block, SelfIndex: self})
		if count <= BlockSize {
			break
		}
		index, count = index/BlockSize, (count+BlockSize-1)/BlockSize
	}
	return levels
}

// depths returns the depth of the binomial tree of the largest block of each level above 0.
func (l *Layout) depths() []int {
	var depths []int
	for count := len(l.nodeRoots); ; count = (count + BlockSize - 1) / BlockSize {
		depths = append(depths, depth(min(count, BlockSize)))
		if count <= BlockSize {
			return depths
		}
	}
}
