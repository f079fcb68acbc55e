// Package chart draws all plots of the lab in one style, with gonum's plot: dark text on white, a
// light grid, the Okabe-Ito colours, which are safe for colour-blind readers, units in the axis
// labels, and the legend next to the plot, not on top of it.
//
// A series may have gaps: an unknown value is NaN, and nothing is drawn for it. Plots are SVG. The
// package does not depend on the data.
package chart

import (
	"image/color"
	"io"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Colours that have a meaning in several pictures.
var (
	Black  = color.RGBA{0x00, 0x00, 0x00, 0xff}
	Orange = color.RGBA{0xe6, 0x9f, 0x00, 0xff}
	Sky    = color.RGBA{0x56, 0xb4, 0xe9, 0xff}
	Green  = color.RGBA{0x00, 0x9e, 0x73, 0xff}
	Blue   = color.RGBA{0x00, 0x72, 0xb2, 0xff}
	Red    = color.RGBA{0xd5, 0x5e, 0x00, 0xff}
	Pink   = color.RGBA{0xcc, 0x79, 0xa7, 0xff}
	Brown  = color.RGBA{0x8a, 0x3b, 0x00, 0xff}
	Grey   = color.RGBA{0x99, 0x99, 0x99, 0xff}
	text   = color.RGBA{0x33, 0x33, 0x33, 0xff}
	grid   = color.RGBA{0xe4, 0xe4, 0xe4, 0xff}
)

// LineColours are the colours of an unknown number of lines.
func LineColours() []color.Color {
	return []color.Color{Blue, Red, Green, Pink, Orange, Sky, Brown, Black}
}

// Plot is one diagram.
type Plot struct {
	*plot.Plot

	names plot.Legend // beside the plot
	named bool
}

// New is a plot with its title and the names of its axes, with their units.
func New(title, x, y string) *Plot {
	p := &Plot{Plot: plot.New(), names: plot.NewLegend()}
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Legend.Top, p.Legend.Left = true, true // text grows to the right, whatever font a viewer has
	p.names.Top, p.names.Left = true, true
	p.Title.Padding = vg.Points(4)
	for _, style := range []*draw.TextStyle{
		&p.Title.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle, &p.names.TextStyle,
	} {
		style.Font.Variant, style.Font.Size, style.Color = "Sans", vg.Points(9), text
	}
	p.X.Color, p.X.Tick.Color, p.X.Tick.Marker = text, text, ticks(10)
	p.Y.Color, p.Y.Tick.Color, p.Y.Tick.Marker = text, text, ticks(5)
	p.names.Padding = vg.Points(2)
	g := plotter.NewGrid()
	g.Vertical.Width = 0
	g.Horizontal.Color = grid
	p.Add(g)
	return p
}

// ticks is about how many numbers an axis has: multiples of 1, 2 or 5 times a power of ten.
type ticks int

// Ticks implements plot.Ticker.
func (n ticks) Ticks(low, high float64) []plot.Tick {
	step := niceStep(high-low, int(n))
	if !(step > 0) {
		return nil
	}
	var out []plot.Tick
	for i := math.Ceil(low / step); i*step <= high+step*1e-9; i++ {
		out = append(out, plot.Tick{Value: i * step, Label: strconv.FormatFloat(i*step, 'g', 6, 64)})
	}
	return out
}

// niceStep divides a span into at most n steps of 1, 2 or 5 times a power of ten.
func niceStep(span float64, n int) float64 {
	least := span / float64(n)
	unit := math.Pow(10, math.Floor(math.Log10(least)))
	for _, m := range []float64{1, 2, 5} {
		if m*unit >= least {
			return m * unit
		}
	}
	return 10 * unit
}

// Series is one line.
type Series struct {
	// Name stands beside the plot; "" for none.
	Name   string
	Points []plotter.XY // a Y of NaN is a gap
	Colour color.Color
	Width  float64   // points; 0: 1.2
	Dashes []float64 // points; none: a whole line
	Steps  bool      // a value stands until the next
}

// Line adds a series.
func (p *Plot) Line(s Series) error {
	style := draw.LineStyle{Color: s.Colour, Width: vg.Points(s.Width)}
	if s.Width == 0 {
		style.Width = vg.Points(1.2)
	}
	for _, d := range s.Dashes {
		style.Dashes = append(style.Dashes, vg.Points(d))
	}
	for _, part := range parts(s.Points) {
		l, err := plotter.NewLine(part)
		if err != nil {
			return err
		}
		if l.LineStyle = style; s.Steps {
			l.StepStyle = plotter.PostStep
		}
		p.Add(l)
	}
	p.name(s.Name, &plotter.Line{LineStyle: style})
	return nil
}

// name adds a name to the list beside the plot; "" for none.
func (p *Plot) name(name string, sign plot.Thumbnailer) {
	if name != "" {
		p.names.Add(name, sign)
		p.named = true
	}
}

// parts are the stretches between gaps. A lone value is a short line.
func parts(points []plotter.XY) []plotter.XYs {
	var out []plotter.XYs
	for from := 0; from < len(points); from++ {
		to := from
		for to < len(points) && known(points[to].Y) {
			to++
		}
		if part := slices.Clone(points[from:to]); len(part) == 1 {
			out = append(out, append(part, part[0]))
		} else if len(part) > 1 {
			out = append(out, part)
		}
		from = to
	}
	return out
}

func known(y float64) bool { return !math.IsNaN(y) && !math.IsInf(y, 0) }

// Area fills what lies between two lines over the same X, where both are known.
func (p *Plot) Area(name string, low, high []plotter.XY, fill color.Color) error {
	p.name(name, swatch{fill})
	for from := 0; from < len(low); from++ {
		to := from
		for to < len(low) && known(low[to].Y) && known(high[to].Y) {
			to++
		}
		if to-from > 1 {
			ring := slices.Clone(low[from:to])
			slices.Reverse(ring)
			area, err := plotter.NewPolygon(append(plotter.XYs(slices.Clone(high[from:to])), ring...))
			if err != nil {
				return err
			}
			area.Color, area.Width = fill, 0
			p.Add(area)
		}
		from = to
	}
	return nil
}

// swatch is an area in the list of names.
type swatch struct{ fill color.Color }

// Thumbnail implements plot.Thumbnailer.
func (s swatch) Thumbnail(c *draw.Canvas) {
	c.FillPolygon(s.fill, []vg.Point{{X: c.Min.X, Y: c.Min.Y}, {X: c.Min.X, Y: c.Max.Y}, {X: c.Max.X, Y: c.Max.Y}, {X: c.Max.X, Y: c.Min.Y}})
}

// Dots adds points, each with a style of its own.
func (p *Plot) Dots(points []plotter.XY, style func(int) draw.GlyphStyle) error {
	dots, err := plotter.NewScatter(plotter.XYs(points))
	if err != nil {
		return err
	}
	dots.GlyphStyleFunc = style
	p.Add(dots)
	return nil
}

// Mark is a moment with a name.
type Mark struct {
	At   float64
	Name string
}

const (
	// rowHigh is the height of a row of names of marks, in points.
	rowHigh = vg.Length(12)
	// letterWide is that of a letter in the widest font that a viewer may have.
	letterWide = vg.Length(5.4)
	// axisWide is what the Y axis takes of a plot.
	axisWide = vg.Length(50)
)

// Marks adds moments, sorted by time, on an axis that is span long: a line through the
// plot, and its name above it, in rows so that none runs into another.
func (p *Plot) Marks(all []Mark, span float64, colour color.Color) {
	rows := rowsOf(all, span)
	if len(rows) > 0 {
		p.Title.Padding += vg.Length(slices.Max(rows)+1) * rowHigh
	}
	p.Add(marks{all, rows, colour})
}

// rowsOf is the row of each mark's name, 0 nearest to the plot. A name stands right of its
// mark: beside the next mark there is room for it only above the next one's own name.
func rowsOf(all []Mark, span float64) []int {
	rows := make([]int, len(all))
	for i := len(all) - 2; i >= 0; i-- {
		if nameEnd(all[i], span) > all[i+1].At {
			rows[i] = rows[i+1] + 1
		}
	}
	return rows
}

// nameEnd is where the name of a mark ends, on the axis.
func nameEnd(m Mark, span float64) float64 {
	wide := plotWide - besideWide - axisWide
	return m.At + float64((vg.Length(len(m.Name))*letterWide+vg.Points(6))/wide)*span
}

type marks struct {
	all    []Mark
	rows   []int
	colour color.Color
}

// Plot implements plot.Plotter.
func (m marks) Plot(c draw.Canvas, p *plot.Plot) {
	x, _ := p.Transforms(&c)
	line := draw.LineStyle{Color: m.colour, Width: vg.Points(0.8), Dashes: []vg.Length{vg.Points(2), vg.Points(3)}}
	words := p.X.Tick.Label
	words.Color, words.XAlign, words.YAlign = m.colour, draw.XLeft, draw.YBottom
	for i, e := range m.all {
		at, foot := x(e.At), c.Max.Y+vg.Points(3)+vg.Length(m.rows[i])*rowHigh
		c.StrokeLine2(line, at, c.Min.Y, at, foot+rowHigh*2/3)
		c.FillText(words, vg.Point{X: at + vg.Points(3), Y: foot}, e.Name)
	}
}

// The size of a plot alone, of one of several below each other, and of what stands beside one.
const (
	plotWide, plotHigh = 8 * vg.Inch, 4 * vg.Inch
	stripHigh          = 1.9 * vg.Inch
	besideWide         = 1.7 * vg.Inch
)

// Save writes a plot as SVG.
func Save(p *Plot, w io.Writer) error { return saveAs(w, plotWide, plotHigh, []*Plot{p}) }

// SaveStrips writes plots below each other as one SVG; the last has the name of their X axis.
func SaveStrips(strips []*Plot, w io.Writer) error {
	for _, p := range strips[:len(strips)-1] {
		p.X.Label.Text = ""
	}
	return saveAs(w, plotWide, vg.Length(len(strips))*stripHigh, strips)
}

// saveAs draws plots below each other, with the names of their lines beside them.
func saveAs(w io.Writer, wide, high vg.Length, plots []*Plot) error {
	canvas := vgsvg.New(wide, high)
	c := draw.New(canvas)
	beside := vg.Length(0)
	column := make([][]*plot.Plot, len(plots))
	for i, p := range plots {
		column[i] = []*plot.Plot{p.Plot}
		if p.named {
			beside = besideWide
		}
	}
	left := draw.Crop(c, vg.Points(4), -beside-vg.Points(4), vg.Points(4), -vg.Points(4))
	tiles := draw.Tiles{Rows: len(plots), Cols: 1, PadY: vg.Points(6)}
	for i, row := range plot.Align(column, tiles, left) {
		plots[i].Draw(row[0]) //nolint:gosec // Align keeps the rows
		names := draw.Crop(c, c.Max.X-c.Min.X-beside+vg.Points(4), 0, 0, 0)
		names.Min.Y, names.Max.Y = row[0].Min.Y, row[0].Max.Y-vg.Points(16)
		plots[i].names.Draw(names) //nolint:gosec // the same
	}
	_, err := canvas.WriteTo(w)
	return err
}
