package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/ferrympi/ferry/framework"
)

// Lengths of a plot, in units of its viewBox; the text is 12 of them high.
const (
	plotWidth, plotHeight = 560, 340 // higher if there are more curves than names fit
	left, right           = 72, 158  // Margins of the axes, for the numbers and the names of curves.
	top, bottom           = 14, 44
	lineHeight            = 15
	longestName           = 21 // characters beside a curve
	narrowMargin          = 26 // Right of the axes without the names, for half of a size.
)

// chart is a benchmark over the size of messages, a curve for each stack, with
// both axes logarithmic. Beside it stands a table with the same figures.
type chart struct {
	ID, Title, Unit string
	// Direction of better figures.
	Better string
	// Text alternative.
	Summary string
	Height  float64
	Curves  []curve
	X, Y    []tick
	Sizes   []int // of the table
}

// A curve is one stack's.
type curve struct {
	Name  string
	Label string // Name, if it is not too long
	Look  int    // which colour, dash and marker
	Path  string
	Marks []mark
	// Positions of its name after a mark, and of the curve's end.
	Key        mark
	EndX, EndY float64

	points []Point
}

// Symbol is the curve's mark outside the axes.
func (k curve) Symbol() mark { return mark{Look: k.Look} }

// mark is one figure.
type mark struct {
	X, Y float64
	Look int // the curve's
	Text string
}

// tick is a line of the grid; a minor one has no text.
type tick struct {
	At   float64
	Text string
}

// looks is how many curves differ in colour, dash or marker.
const looks = 8

// Ends of the axes, for the template.
func (chart) Left() float64     { return left }
func (chart) Right() float64    { return plotWidth - right }
func (chart) Top() float64      { return top }
func (c chart) Bottom() float64 { return c.Height - bottom }
func (chart) Middle() float64   { return (left + plotWidth - right) / 2 }
func (chart) LabelX() float64   { return plotWidth - right + 24 }
func (c chart) Box() string     { return fmt.Sprintf("0 0 %d %v", plotWidth, c.Height) }

// NarrowBox is the part of Box without the names of the curves.
func (c chart) NarrowBox() string {
	return fmt.Sprintf("0 0 %d %v", plotWidth-right+narrowMargin, c.Height)
}

// charts draws the benchmarks with two sizes or more.
func charts(r *Report) []chart {
	var out []chart
	for _, k := range []struct{ name, title, unit, better string }{
		{"bench/latency", "Latency", "us", "lower is better"},
		{"bench/bandwidth", "Bandwidth", "MB/s", "higher is better"},
		{"bench/rate", "Message rate", "msg/s", "higher is better"},
	} {
		c := chart{ID: "plot-" + column(k.name), Title: k.title, Unit: k.unit, Better: k.better}
		sizes := 0
		for _, row := range r.Rows {
			if row.Case != k.name {
				continue
			}
			points := slices.DeleteFunc(slices.Clone(row.Points), func(p Point) bool {
				return p.Unit != k.unit || p.Size < 1 || !(p.Value > 0) || math.IsInf(p.Value, 1)
			})
			if len(points) == 0 {
				continue
			}
			slices.SortFunc(points, func(a, b Point) int { return a.Size - b.Size })
			label := []rune(Printable(row.Stack))
			if len(label) > longestName {
				label = append(label[:longestName-1], '…')
			}
			c.Curves = append(c.Curves, curve{Name: row.Stack, Label: string(label), Look: len(c.Curves) % looks, points: points})
			sizes = max(sizes, len(points))
		}
		if sizes > 1 {
			c.draw()
			out = append(out, c)
		}
	}
	return out
}

// draw turns figures into places.
func (c *chart) draw() {
	c.Height = max(plotHeight, float64(top+bottom+lineHeight*len(c.Curves)))
	lowX, highX, lowY, highY := math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)
	for _, k := range c.Curves {
		for _, p := range k.points {
			c.Sizes = append(c.Sizes, p.Size)
			x, y := math.Log2(float64(p.Size)), math.Log10(p.Value)
			lowX, highX = min(lowX, x), max(highX, x)
			lowY, highY = min(lowY, y), max(highY, y)
		}
	}
	slices.Sort(c.Sizes)
	c.Sizes = slices.Compact(c.Sizes)
	// From decade to decade, or to the half of one.
	lowY, highY = floorHalf(lowY), -floorHalf(-highY)
	if highY == lowY {
		highY = lowY + 0.5
	}
	x := func(size int) float64 {
		return round(left + (math.Log2(float64(size))-lowX)/(highX-lowX)*(plotWidth-right-left))
	}
	y := func(value float64) float64 {
		return round(c.Bottom() - (math.Log10(value)-lowY)/(highY-lowY)*(c.Bottom()-top))
	}
	for i := range c.Curves {
		k := &c.Curves[i]
		for j, p := range k.points {
			m := mark{x(p.Size), y(p.Value), k.Look, fmt.Sprintf("%s: %s at %s", k.Name, p.Figure(), sizeText(p.Size))}
			k.Marks = append(k.Marks, m)
			k.Path += fmt.Sprintf("%c%v %v", "ML"[min(j, 1)], m.X, m.Y)
			k.EndX, k.EndY = m.X, m.Y
		}
	}
	c.placeLabels()
	step := max(1, int(math.Ceil((highX-lowX)/6)))
	for e := int(math.Ceil(lowX)); float64(e) <= highX; e += step {
		c.X = append(c.X, tick{x(1 << e), sizeText(1 << e)})
	}
	close := highY-lowY <= 2 // room for numbers at 2 and 5
	for d := math.Floor(lowY); d <= highY; d++ {
		for _, f := range []float64{1, 2, 5} {
			value := f * math.Pow(10, d)
			if l := math.Log10(value); l < lowY-1e-9 || l > highY+1e-9 {
				continue
			}
			t := tick{At: y(value)}
			if f == 1 || close {
				t.Text = valueText(value, c.Unit)
			}
			c.Y = append(c.Y, t)
		}
	}
	c.Summary = c.describe()
}

// placeLabels puts the curves' names beside their ends, where they don't overlap.
func (c *chart) placeLabels() {
	order := make([]*curve, len(c.Curves))
	for i := range c.Curves {
		order[i] = &c.Curves[i]
	}
	slices.SortStableFunc(order, func(a, b *curve) int { return int(math.Round(10 * (a.EndY - b.EndY))) })
	// Down as far as needed, then up again as far as there is no room.
	lowest := math.Inf(-1)
	for _, k := range order {
		k.Key = mark{X: c.LabelX() - 8, Y: max(k.EndY, lowest+lineHeight), Look: k.Look}
		lowest = k.Key.Y
	}
	highest := c.Bottom() + lineHeight
	for _, k := range slices.Backward(order) {
		k.Key.Y = min(k.Key.Y, highest-lineHeight)
		highest = k.Key.Y
	}
}

// describe returns the text alternative.
func (c *chart) describe() string {
	s := fmt.Sprintf("%s over the size of messages, both logarithmic, of %d stacks; %s.", c.Title, len(c.Curves), c.Better)
	for _, k := range c.Curves {
		first, last := k.points[0], k.points[len(k.points)-1]
		s += fmt.Sprintf(" %s: %s at %s, %s at %s.", k.Name, first.Figure(), sizeText(first.Size), last.Figure(), sizeText(last.Size))
	}
	return s
}

// At is the figure at a size, for the table; empty if there is none.
func (k curve) At(size int) string {
	for _, p := range k.points {
		if p.Size == size {
			return p.Figure()
		}
	}
	return ""
}

// sizeText is a size as people write it.
func sizeText(bytes int) string {
	text := framework.Size(bytes).String()
	if i := strings.IndexAny(text, "KMGT"); i >= 0 {
		return text[:i] + " " + text[i:]
	}
	return text + " B"
}

// valueText is a round number at an axis, with its unit, as the table has it.
func valueText(value float64, unit string) string {
	for _, u := range larger[unit] {
		if value > 999.9 {
			value, unit = value/1000, u
		}
	}
	return strconv.FormatFloat(value, 'g', 3, 64) + " " + unit
}

// floorHalf is the next multiple of a half below.
func floorHalf(x float64) float64 { return math.Floor(2*x) / 2 }

// round rounds to a tenth, which is precise enough for the eye.
func round(x float64) float64 { return math.Round(10*x) / 10 }
