package colltest

import (
	"fmt"
	"strings"

	"github.com/ferrympi/ferry/coll"
)

// Script returns a command for golden scripts (framework/scripttest) that prints the steps of each
// member. A line has an operation, an algorithm and the number of members. It may continue with
// root=R, ordered, in-place, nodes=0,0,1 (the node of each rank), procs=0,0,1 (the process of each
// rank) and the size of a block in bytes, or those of each rank if they differ, such as 8 or 8,0,4.
func Script(c coll.Component, params any) func(line string) ([]string, error) {
	return func(line string) ([]string, error) {
		var op, name string
		var size int
		if _, err := fmt.Sscan(line, &op, &name, &size); err != nil {
			return nil, fmt.Errorf("%s: %w", line, err)
		}
		args := coll.Args{ElemSize: 8, Size: 8}
		shape := coll.Shape{Size: size}
		var sizes []int
		for _, word := range strings.Fields(line)[3:] {
			switch {
			case word == "ordered":
				args.IsOrdered = true
			case word == "in-place":
				args.IsInPlace = true
			case strings.HasPrefix(word, "root="):
				if _, err := fmt.Sscanf(word, "root=%d", &args.Root); err != nil {
					return nil, fmt.Errorf("%s: %w", line, err)
				}
			default:
				list, nodes := strings.CutPrefix(word, "nodes=")
				list, procs := strings.CutPrefix(list, "procs=")
				var numbers []int
				for _, s := range strings.Split(list, ",") {
					var n int
					if _, err := fmt.Sscan(s, &n); err != nil {
						return nil, fmt.Errorf("%s: %w", line, err)
					}
					numbers = append(numbers, n)
				}
				switch {
				case (nodes || procs) && len(numbers) != size:
					return nil, fmt.Errorf("%s: nodes or processes of %d members, want one for each", line, len(numbers))
				case nodes:
					shape.Nodes = coll.PlacementOf(numbers...)
				case procs:
					shape.Procs = coll.PlacementOf(numbers...)
				default:
					sizes = numbers
				}
			}
		}
		if len(sizes) == 1 {
			args.Size = sizes[0]
		}
		offer := c.Query(params, shape)
		if offer == nil {
			return nil, fmt.Errorf("%s: the component offers nothing", line)
		}
		for _, a := range offer.Algorithms {
			if a.Op.String() == op && a.Name == name {
				return planLines(&a, size, args, sizes)
			}
		}
		return nil, fmt.Errorf("%s: no such algorithm", line)
	}
}

func planLines(a *coll.Algorithm, size int, args coll.Args, sizes []int) (lines []string, err error) {
	args.OwnSize = args.Size
	if len(sizes) > 1 {
		if len(sizes) != size {
			return nil, fmt.Errorf("%d sizes for %d members", len(sizes), size)
		}
		at, end := make([]int, size), 0
		for rank, n := range sizes {
			at[rank] = end
			end += n
		}
		args.Vectors = &coll.Vectors{SendCounts: sizes, SendOffsets: at, RecvCounts: sizes, RecvOffsets: at}
	}
	for rank := range size {
		if args.Vectors != nil {
			args.OwnSize = sizes[rank]
		}
		var s coll.Schedule
		a.Plan(&s, coll.Member{Rank: rank, Size: size}, &args)
		lines = append(lines, fmt.Sprintf("%d: %s", rank, formatSchedule(&s)))
	}
	return lines, nil
}

// formatSchedule formats a schedule on one line. Bars separate steps that depend on all previous ones. A
// number before a bar is the number of steps on which the following ones depend, if not on all.
func formatSchedule(s *coll.Schedule) string {
	var b strings.Builder
	after := int32(0)
	for i, step := range s.Steps {
		switch {
		case step.After > after && int(step.After) == i:
			b.WriteString(" | ")
		case step.After > after:
			fmt.Fprintf(&b, " %d| ", step.After)
		case i > 0:
			b.WriteString(", ")
		}
		after = step.After
		at := formatRef(step.Buf, step.N)
		switch step.Kind {
		case coll.Send:
			fmt.Fprintf(&b, "send %s to %d", at, step.Peer)
		case coll.Recv:
			fmt.Fprintf(&b, "recv %s from %d", at, step.Peer)
		case coll.Copy:
			fmt.Fprintf(&b, "copy %s to %s", formatRef(step.From, step.N), at)
		case coll.Own:
			fmt.Fprintf(&b, "own %d %d %s from %s", step.Do, step.Peer, at, formatRef(step.From, step.N))
		case coll.Work:
			fmt.Fprintf(&b, "work %d %d %s from %s", step.Do, step.Peer, at, formatRef(step.From, step.N))
		case coll.Combine:
			fmt.Fprintf(&b, "%s = %s op itself", at, formatRef(step.From, step.N))
		}
	}
	if len(s.Steps) == 0 {
		b.WriteString("nothing")
	}
	return b.String()
}

var slotNames = [...]string{coll.In: "in", coll.Out: "out", coll.Temp: "temp", coll.Shared: "shared"}

func formatRef(r coll.Ref, n int) string {
	return fmt.Sprintf("%s[%d:%d]", slotNames[r.Slot], r.At, r.At+n)
}
