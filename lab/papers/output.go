package papers

import (
	"encoding/csv"
	"fmt"
	"image/color"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Files are a study's tables and plots, by file name.
type Files map[string]func(io.Writer) error

// Write writes all of them into a folder, which it makes.
func (f Files) Write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(f)) {
		if err := writeFile(filepath.Join(dir, name), f[name]); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func writeFile(path string, make func(io.Writer) error) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := file.Close(); err == nil {
			err = cerr
		}
	}()
	return make(file)
}

// WriteCSV writes rows, the first of them the names of the columns.
func WriteCSV(w io.Writer, rows [][]string) error {
	c := csv.NewWriter(w)
	if err := c.WriteAll(rows); err != nil {
		return err
	}
	return c.Error()
}

// Colours by Okabe and Ito, told apart by everybody.
func Colours() []color.Color {
	return []color.Color{
		color.RGBA{0x99, 0x99, 0x99, 0xff},
		color.RGBA{0xe6, 0x9f, 0x00, 0xff},
		color.RGBA{0x56, 0xb4, 0xe9, 0xff},
		color.RGBA{0xcc, 0x79, 0xa7, 0xff},
		color.RGBA{0x00, 0x72, 0xb2, 0xff},
	}
}

// The size of one of several panels and of a plot alone.
const (
	panelWide, panelHigh = 4.2 * vg.Inch, 2.7 * vg.Inch
	plotWide, plotHigh   = 8 * vg.Inch, 4 * vg.Inch
)

// NewPlot is a plot in the house's style, with its title and the names of its axes.
func NewPlot(title, x, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Legend.Top, p.Legend.Left = true, true // text grows to the right, whatever font a viewer has
	for _, style := range []*draw.TextStyle{
		&p.Title.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle,
	} {
		style.Font.Variant, style.Font.Size = "Sans", vg.Points(9)
	}
	grid := plotter.NewGrid()
	grid.Vertical.Width = 0
	grid.Horizontal.Color = color.RGBA{0xe4, 0xe4, 0xe4, 0xff}
	p.Add(grid)
	return p
}

// SavePlot writes a plot as SVG.
func SavePlot(p *plot.Plot, w io.Writer) error {
	canvas := vgsvg.New(plotWide, plotHigh)
	p.Draw(draw.New(canvas))
	_, err := canvas.WriteTo(w)
	return err
}

// SavePanels writes rows of plots, all equally long, as one SVG.
func SavePanels(panels [][]*plot.Plot, w io.Writer) error {
	canvas := vgsvg.New(vg.Length(len(panels[0]))*panelWide, vg.Length(len(panels))*panelHigh)
	tiles := draw.Tiles{Rows: len(panels), Cols: len(panels[0]), PadX: vg.Points(8), PadY: vg.Points(8), PadTop: vg.Points(4), PadRight: vg.Points(4)}
	for r, line := range plot.Align(panels, tiles, draw.New(canvas)) {
		for c := range line {
			panels[r][c].Draw(line[c])
		}
	}
	_, err := canvas.WriteTo(w)
	return err
}
