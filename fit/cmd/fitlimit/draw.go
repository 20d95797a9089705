package main

import (
	"bytes"
	_ "embed"
	"html/template"
	"image/color"
	"os"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	vgdraw "gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"number": number, "share": shareName, "percent": percent, "wait": waitName,
}).Parse(pageText))

// draw writes a page with the picture and the tables. The page loads no other files.
func draw(name string, f *fitting) error {
	wide, err := f.svg(560, 380)
	if err != nil {
		return err
	}
	narrow, err := f.svg(280, 300)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	err = page.Execute(&text, struct {
		*fitting
		PerKey                 bool
		Summary, Code, Caption string
		Warnings               []string
		Wide, Narrow           template.HTML
	}{f, f.perKey, f.summary(), f.code(), f.caption(), f.warnings(), template.HTML(wide), template.HTML(narrow)})
	if err != nil {
		return err
	}
	return os.WriteFile(name, text.Bytes(), 0o644)
}

func (f *fitting) caption() string {
	caption := "The least capacity for each refill."
	if f.WholeSeconds {
		caption += " The grey band shows how far it may be wrong, since times are in whole seconds."
	}
	if f.perKey {
		caption += " Thin grey lines: single keys, the busiest ones and those that need most."
	}
	if len(f.Tries) > 0 {
		caption += " Points: the candidates, with the share that they would have refused."
	}
	return caption
}

// styles are those of the curves. They differ in dashes and widths, so that they also differ in black
// and white.
var styles = []vgdraw.LineStyle{
	{Color: color.Black, Width: vg.Points(2)},
	{Color: color.RGBA{0x1f, 0x4e, 0x9e, 0xff}, Width: vg.Points(1.6), Dashes: []vg.Length{vg.Points(7), vg.Points(3)}},
	{Color: color.RGBA{0xb0, 0x3a, 0x10, 0xff}, Width: vg.Points(1.6), Dashes: []vg.Length{vg.Points(2), vg.Points(2)}},
	{Color: color.RGBA{0x1b, 0x6e, 0x3c, 0xff}, Width: vg.Points(1.6), Dashes: []vg.Length{vg.Points(9), vg.Points(3), vg.Points(2), vg.Points(3)}},
	{Color: color.RGBA{0x6a, 0x2c, 0x8a, 0xff}, Width: vg.Points(1), Dashes: []vg.Length{vg.Points(1), vg.Points(5)}},
}

var (
	bandColor = color.RGBA{0xe4, 0xe4, 0xe4, 0xff}
	thin      = vgdraw.LineStyle{Color: color.RGBA{0xb8, 0xb8, 0xb8, 0xff}, Width: vg.Points(0.7)}
)

// svg returns the picture: refill to the right, capacity upwards, both on logarithmic axes.
// Its texts are 10 to 12 points, whatever the size.
func (f *fitting) svg(widthInPoints, heightInPoints float64) (string, error) {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = "refill, tokens per second", "capacity, tokens"
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = ratioTicks{}, ratioTicks{}
	p.Legend.Top = true
	p.Add(plotter.NewGrid())
	for _, add := range []func(*plot.Plot) error{f.addBand, f.addKeys, f.addCurves, f.addTries} {
		if err := add(p); err != nil {
			return "", err
		}
	}
	widen(&p.X)
	widen(&p.Y)
	canvas := vgsvg.New(vg.Points(widthInPoints), vg.Points(heightInPoints))
	p.Draw(vgdraw.New(canvas))
	var text bytes.Buffer
	if _, err := canvas.WriteTo(&text); err != nil {
		return "", err
	}
	_, svg, _ := strings.Cut(text.String(), "<svg")
	return "<svg" + svg, nil
}

// point returns a point of the picture. Numbers that a logarithmic axis cannot show are moved to
// its ends.
func point(refill, capacity float64) plotter.XY {
	const least, most = 1e-100, 1e100
	return plotter.XY{X: min(max(refill, least), most), Y: min(max(capacity, least), most)}
}

// widen gives a logarithmic axis a width if all its values are nearly equal.
func widen(axis *plot.Axis) {
	if axis.Max < 1.2*axis.Min {
		axis.Min, axis.Max = axis.Min/2, axis.Max*2
	}
}

// addBand shades the area in which the first curve may be, since times are in whole
// seconds.
func (f *fitting) addBand(p *plot.Plot) error {
	if !f.WholeSeconds {
		return nil
	}
	rows := f.Rows
	if len(rows) == 1 { // a band needs a width
		left, right := rows[0], rows[0]
		left.Refill, right.Refill = left.Refill/1.05, right.Refill*1.05
		rows = []row{left, right}
	}
	var outline plotter.XYs
	for _, r := range rows {
		outline = append(outline, point(r.Refill, r.Capacities[0]+r.Band))
	}
	for _, r := range slices.Backward(rows) {
		low := max(r.Capacities[0]-r.Band, rows[len(rows)-1].Capacities[0]/10)
		outline = append(outline, point(r.Refill, min(low, r.Capacities[0])))
	}
	band, err := plotter.NewPolygon(outline)
	if err != nil {
		return err
	}
	band.Color, band.LineStyle.Width = bandColor, 0
	p.Add(band)
	return nil
}

// addKeys draws the curves of some single keys.
func (f *fitting) addKeys(p *plot.Plot) error {
	if !f.perKey || f.Keys < 2 {
		return nil
	}
	for _, key := range f.drawnKeys() {
		line, err := plotter.NewLine(f.points(func(r row) float64 { return f.traffic.NeedOf(key, r.Refill) }))
		if err != nil {
			return err
		}
		line.LineStyle = thin
		p.Add(line)
	}
	return nil
}

// drawnKeys returns up to five keys that need the largest capacities at the least refill,
// which are the busiest keys, and up to five that need the largest at the chosen refill.
func (f *fitting) drawnKeys() (keys []string) {
	for _, refill := range []float64{f.Rows[0].Refill, f.chosen().Refill} {
		for _, n := range f.traffic.Neediest(refill, 5) {
			if n.Capacity > 0 && !slices.Contains(keys, n.Key) {
				keys = append(keys, n.Key)
			}
		}
	}
	return keys
}

func (f *fitting) addCurves(p *plot.Plot) error {
	for i, share := range f.Shares {
		line, err := plotter.NewLine(f.points(func(r row) float64 { return r.Capacities[i] }))
		if err != nil {
			return err
		}
		line.LineStyle = styles[i%len(styles)]
		p.Add(line)
		if len(f.Rows) == 1 { // a line of one point is invisible
			points, err := plotter.NewScatter(line.XYs)
			if err != nil {
				return err
			}
			points.GlyphStyle = vgdraw.GlyphStyle{Color: line.Color, Radius: vg.Points(3), Shape: vgdraw.SquareGlyph{}}
			p.Add(points)
		}
		p.Legend.Add(shareName(share), line)
	}
	return nil
}

func (f *fitting) points(capacity func(row) float64) (points plotter.XYs) {
	for _, r := range f.Rows {
		points = append(points, point(r.Refill, capacity(r)))
	}
	return points
}

func (f *fitting) addTries(p *plot.Plot) error {
	if len(f.Tries) == 0 {
		return nil
	}
	var tried plotter.XYLabels
	for _, t := range f.Tries {
		tried.XYs = append(tried.XYs, point(t.Limit.RefillPerSec, t.Limit.Capacity))
		tried.Labels = append(tried.Labels, " "+percent(t.Share))
	}
	points, err := plotter.NewScatter(tried)
	if err != nil {
		return err
	}
	points.GlyphStyle = vgdraw.GlyphStyle{Color: color.Black, Radius: vg.Points(3.5), Shape: vgdraw.CircleGlyph{}}
	labels, err := plotter.NewLabels(tried)
	if err != nil {
		return err
	}
	labels.Offset = vg.Point{X: vg.Points(3), Y: vg.Points(3)}
	p.Add(points, labels)
	return nil
}

// ratioTicks marks multiples of the powers of ten, in plain digits. It marks fewer of
// them if an axis has more powers.
type ratioTicks struct{}

func (ratioTicks) Ticks(low, high float64) (ticks []plot.Tick) {
	var digits []float64
	switch ratio := high / low; {
	case ratio < 5:
		digits = []float64{1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9}
	case ratio < 20:
		digits = []float64{1, 2, 3, 5, 7}
	case ratio < 1e4:
		digits = []float64{1, 2, 5}
	default:
		digits = []float64{1}
	}
	for power := 1e-9; power < 1e15; power *= 10 {
		for _, digit := range digits {
			if x := digit * power; x >= low && x <= high {
				ticks = append(ticks, plot.Tick{Value: x, Label: number(x)})
			}
		}
	}
	return ticks
}
