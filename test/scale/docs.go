package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// docsPPN is the number of processes per node in docs/scale.md.
const docsPPN = 8

// row is a row of the table in docs/scale.md.
type row struct {
	nodeCount                         int
	singleCost, worldCost, sparseCost cost
}

// cost is the cost of the communicators of a job.
type cost struct {
	elapsed    time.Duration
	roundCount int
	// Most of a process through the bootstrap.
	launcherBytes int64
	// On each node.
	tableBytes int64
}

// measureRow creates the communicators of a row: a world by a single construct and in levels, and a sparse world.
func measureRow(o options, nodes int) (row, error) {
	o.nodeCount = nodes
	r := row{nodeCount: nodes}
	m, err := newMembers(o.procsPerNode)
	if err != nil {
		return r, err
	}
	single := func(o options) (cost, error) {
		j := o.job(m, o.world())
		j.IsSingle = true
		result := j.Run()
		for i, outcome := range result.Outcomes {
			if outcome.Err != nil {
				return cost{}, fmt.Errorf("member %d: %w", i, outcome.Err)
			}
		}
		return cost{elapsed: result.Elapsed, roundCount: result.LongestChain, launcherBytes: result.MostLauncherBytes}, nil
	}
	one := o
	one.nodeCount = 1
	shared, err := single(one)
	if err != nil {
		return r, err
	}
	if nodes == 1 {
		r.singleCost, r.worldCost, r.sparseCost = shared, shared, shared
		return r, nil
	}
	if nodes <= mostSingle {
		if r.singleCost, err = single(o); err != nil {
			return r, err
		}
	}
	world, err := create(o, o.world())
	if err != nil {
		return r, err
	}
	roots, err := create(o, o.roots())
	if err != nil {
		return r, err
	}
	r.worldCost = cost{world.Elapsed, world.LongestChain, world.MostLauncherBytes, int64(world.tableBytes)}
	r.sparseCost = cost{shared.elapsed + roots.Elapsed, shared.roundCount + roots.LongestChain, shared.launcherBytes + roots.MostLauncherBytes, int64(roots.tableBytes + roots.tableBytes/nodes*o.procsPerNode)}
	return r, nil
}

// mostSingle is the largest number of nodes with a single construct in the table, whose cost grows with the square.
const mostSingle = 512

const tableHead = `| nodes | single construct, time | in one process | world, time | in one process | rounds | table of a node | sparse world, time | in one process | tables of a node |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
`

func (r row) String() string {
	if r.nodeCount == 1 {
		return fmt.Sprintf("| 1 | %s | %s | the same | | | | the same | | |\n", milliseconds(r.singleCost.elapsed), size(r.singleCost.launcherBytes))
	}
	single := "| | |"
	if r.nodeCount <= mostSingle {
		single = fmt.Sprintf("| %s | %s |", milliseconds(r.singleCost.elapsed), size(r.singleCost.launcherBytes))
	}
	return fmt.Sprintf("| %d %s %s | %s | %d | %s | %s | %s | %s |\n", r.nodeCount, single,
		milliseconds(r.worldCost.elapsed), size(r.worldCost.launcherBytes), r.worldCost.roundCount, size(r.worldCost.tableBytes),
		milliseconds(r.sparseCost.elapsed), size(r.sparseCost.launcherBytes), size(r.sparseCost.tableBytes))
}

func milliseconds(d time.Duration) string {
	if d >= 10*time.Millisecond {
		return fmt.Sprintf("%.0f ms", d.Seconds()*1000)
	}
	return fmt.Sprintf("%.2g ms", d.Seconds()*1000)
}

// Marks around the table in docs/scale.md.
const (
	beginMark = "<!-- begin: go run ./test/scale -docs docs -->\n"
	endMark   = "<!-- end -->\n"
)

// runDocs writes the table of scale.md in a folder, and scale.svg.
func runDocs(out io.Writer, o options) error {
	var rows []row
	table := tableHead
	for nodes := 1; nodes <= maxNodes; nodes *= 2 {
		r, err := measureRow(o, nodes)
		if err != nil {
			return err
		}
		rows, table = append(rows, r), table+r.String()
		fmt.Fprint(out, r)
	}
	path := filepath.Join(o.docsDir, "scale.md")
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, isFound := strings.Cut(string(page), beginMark)
	_, after, isEnded := strings.Cut(rest, endMark)
	if !isFound || !isEnded {
		return errors.New(path + ": no marks around a table")
	}
	if err := os.WriteFile(path, []byte(before+beginMark+table+endMark+after), 0o644); err != nil {
		return err
	}
	return draws(filepath.Join(o.docsDir, "plots", "scale.svg"), rows)
}

// draws draws the times of the rows.
func draws(path string, rows []row) error {
	p := plot.New()
	p.Title.Text = fmt.Sprintf("Creation of communicators with %d processes per node (model)", docsPPN)
	p.X.Label.Text, p.Y.Label.Text = "nodes", "time, ms"
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.LogTicks{Prec: -1}, plot.LogTicks{Prec: -1}
	p.Legend.Left, p.Legend.Top = true, true
	p.Add(plotter.NewGrid())
	for i, curve := range []struct {
		name string
		of   func(row) cost
	}{
		{"world, single construct", func(r row) cost { return r.singleCost }},
		{"world, in levels", func(r row) cost { return r.worldCost }},
		{"sparse world", func(r row) cost { return r.sparseCost }},
	} {
		var points plotter.XYs
		for _, r := range rows {
			if curve.of(r).elapsed == 0 {
				continue
			}
			points = append(points, plotter.XY{X: float64(r.nodeCount), Y: curve.of(r).elapsed.Seconds() * 1000})
		}
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return err
		}
		line.Color, line.Dashes = plotutil.Color(i), plotutil.Dashes(i)
		dots.Color, dots.Shape = plotutil.Color(i), plotutil.Shape(i)
		p.Add(line, dots)
		p.Legend.Add(curve.name, line, dots)
	}
	canvas := vgsvg.New(17*vg.Centimeter, 11*vg.Centimeter)
	p.Draw(draw.New(canvas))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}
