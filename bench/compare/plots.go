package main

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/ferrympi/ferry/framework"
)

// A graph is one picture of docs/plots.
type graph struct {
	benchName, Title, axisTitle string
	Short                       string
	// The legend is in the upper left corner, not in the lower one.
	isLegendAtTop bool
}

var graphs = []graph{
	{"latency", "Latency between two ranks", "one way, us", "latency", true},
	{"bw", "Bandwidth between two ranks, 64 messages in flight", "GB/s", "bandwidth", true},
	{"mbw_mr", "Message rate between two ranks, 64 messages in flight", "million messages/s", "message rate", false},
}

func (g graph) File() string { return g.benchName + ".svg" }

// colors are those of Okabe and Ito, which color-blind readers can distinguish.
// Shapes and dashes differ too.
var colors = []color.RGBA{
	{0xd5, 0x5e, 0x00, 0xff}, // ferry
	{0x00, 0x72, 0xb2, 0xff}, {0x56, 0xb4, 0xe9, 0xff}, {0x00, 0x9e, 0x73, 0xff}, {0xcc, 0x79, 0xa7, 0xff},
}

// plots draws the graphs with curves into dir.
func plots(dir string, curves []*curve) error {
	for _, g := range graphs {
		var mine []*curve
		for _, c := range curves {
			if c.BenchName == g.benchName && len(c.Points) > 0 {
				mine = append(mine, c)
			}
		}
		if len(mine) == 0 {
			continue
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := g.draw(filepath.Join(dir, g.File()), mine); err != nil {
			return fmt.Errorf("plot of %s: %w", g.benchName, err)
		}
	}
	return nil
}

func (g graph) draw(path string, curves []*curve) error {
	p := plot.New()
	p.Title.Text = g.Title
	p.X.Label.Text, p.Y.Label.Text = "size of the message, bytes", g.axisTitle
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.TickerFunc(sizeTicks), plot.TickerFunc(decimalTicks)
	for _, f := range []*font.Font{
		&p.Title.TextStyle.Font, &p.X.Label.TextStyle.Font, &p.Y.Label.TextStyle.Font,
		&p.X.Tick.Label.Font, &p.Y.Tick.Label.Font, &p.Legend.TextStyle.Font,
	} {
		f.Variant = "Sans"
	}
	p.Title.Padding, p.Legend.Padding = vg.Points(6), vg.Points(2)
	p.Legend.Left, p.Legend.Top = true, g.isLegendAtTop
	p.Legend.XOffs, p.Legend.ThumbnailWidth = vg.Points(8), vg.Points(28)
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = color.Gray{0xdd}, color.Gray{0xdd}
	p.Add(grid)
	for i, c := range curves {
		xys := make(plotter.XYs, len(c.Points))
		for j, pt := range c.Points {
			xys[j] = plotter.XY{X: float64(pt.MessageBytes), Y: pt.Value}
		}
		line, dots, err := plotter.NewLinePoints(xys)
		if err != nil {
			return err
		}
		color := colors[i%len(colors)]
		line.Color, line.Width, line.Dashes = color, vg.Points(1.5), plotutil.Dashes(i)
		dots.Color, dots.Shape, dots.Radius = color, plotutil.Shape(i), vg.Points(2.5)
		p.Add(line, dots)
		name := c.ProgramTitle
		if c.Setting != "" {
			name += ", " + c.Setting
		}
		p.Legend.Add(name, line, dots)
	}
	// Leave room for the legend.
	if g.isLegendAtTop {
		p.Y.Max *= 3
	} else {
		p.Y.Min /= 4
	}
	const width, height = 17 * vg.Centimeter, 11 * vg.Centimeter
	canvas := vgsvg.New(width, height)
	p.Draw(draw.New(canvas))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return err
	}
	// Alternatives with the same widths.
	svg := bytes.ReplaceAll(b.Bytes(), []byte("font-family:Liberation Sans"), []byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif"))
	return os.WriteFile(path, svg, 0o644)
}

// sizeTicks marks the powers of two, and names every second one.
func sizeTicks(low, high float64) []plot.Tick {
	var ticks []plot.Tick
	for e := 0; math.Exp2(float64(e)) <= high*1.001; e++ {
		v := math.Exp2(float64(e))
		if v < low*0.999 {
			continue
		}
		t := plot.Tick{Value: v}
		if e%2 == 0 {
			t.Label = framework.Size(v).String()
		}
		ticks = append(ticks, t)
	}
	return ticks
}

// decimalTicks marks 1, 2 and 5 in each decade.
func decimalTicks(low, high float64) []plot.Tick {
	var ticks []plot.Tick
	for e := math.Floor(math.Log10(low)); math.Pow(10, e) <= high; e++ {
		for _, m := range []float64{1, 2, 5} {
			if v := m * math.Pow(10, e); v >= low*0.999 && v <= high*1.001 {
				ticks = append(ticks, plot.Tick{Value: v, Label: strconv.FormatFloat(v, 'f', -1, 64)})
			}
		}
	}
	return ticks
}
