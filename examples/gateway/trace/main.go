// Command trace draws the level of a bucket over time while requests come in. It writes
// the picture that the README shows, an SVG, to standard output.
package main

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"text/template"
	"time"

	"github.com/aa014e13/tokenbucket"
)

// The picture shows requests that cost 1 token each. Instants are in seconds from the
// start, when the bucket is full.
var (
	limit    = tokenbucket.Limit{Capacity: 3, RefillPerSec: 0.5}
	requests = []int{0, 0, 0, 0, 1, 2, 3, 4}
)

const end = 5 * time.Second

func main() {
	out := bufio.NewWriter(os.Stdout)
	if err := draw(out); err != nil {
		log.Fatal(err)
	}
	if err := out.Flush(); err != nil {
		log.Fatal(err)
	}
}

// decision is a decision with its instant and the level just before it.
type decision struct {
	tokenbucket.Decision
	at     time.Duration
	before float64
}

func decide() []decision {
	var all []decision
	state := limit.Full(0)
	for _, second := range requests {
		d := decision{at: time.Duration(second) * time.Second}
		d.before = limit.Tokens(state, d.at)
		state, d.Decision = limit.Take(state, d.at, 1)
		all = append(all, d)
	}
	return all
}

// Positions and distances, in SVG units.
const (
	left, top             = 44, 30
	perSecond, perToken   = 104, 52
	firstRow, rowDistance = 46, 24
)

func x(at time.Duration) float64 { return left + at.Seconds()*perSecond }

func y(tokens float64) float64 { return top + (limit.Capacity-tokens)*perToken }

// corners returns the points at which the line of the level bends, as the attribute d of
// a path.
func corners(decisions []decision) string {
	points := []string{"M"}
	bend := func(at time.Duration, tokens float64) {
		points = append(points, fmt.Sprintf("%g,%g", x(at), y(tokens)))
	}
	for i, d := range decisions {
		next := end
		if i+1 < len(decisions) {
			next = decisions[i+1].at
		}
		bend(d.at, d.before)
		bend(d.at, d.Tokens)
		if full := d.at + d.Reset(); full < next {
			bend(full, limit.Capacity)
		}
	}
	last := decisions[len(decisions)-1]
	bend(end, min(limit.Capacity, last.Tokens+limit.RefillPerSec*(end-last.at).Seconds()))
	return strings.Join(points, " ")
}

// mark is the drawing of a request: the level after it and, below the axis, the answer.
// Answers of the same instant form a column.
type mark struct {
	X, Y, Down, Due float64 // Due is the X of the instant at which it would be admitted
	OK              bool
	Title, Label    string
}

func marks(decisions []decision) []mark {
	var all []mark
	row := 0
	for i, d := range decisions {
		row++
		if i == 0 || decisions[i-1].at != d.at {
			row = 0
		}
		m := mark{X: x(d.at), Y: y(0) + firstRow + float64(row)*rowDistance, Down: y(d.Tokens), Due: x(d.at + d.Wait), OK: d.OK}
		m.Title = fmt.Sprintf("at %v s: admitted, %v left", d.at.Seconds(), d.Tokens)
		if !d.OK {
			m.Label = fmt.Sprintf("429, wait %v s", d.Wait.Seconds())
			m.Title = fmt.Sprintf("at %v s: %s, %v left", d.at.Seconds(), m.Label, d.Tokens)
		}
		all = append(all, m)
	}
	return all
}

func draw(out io.Writer) error {
	decisions := decide()
	var seconds []float64
	for at := time.Duration(0); at <= end; at += time.Second {
		seconds = append(seconds, x(at))
	}
	return picture.Execute(out, map[string]any{
		"Limit": limit, "Seconds": seconds, "Line": corners(decisions), "Marks": marks(decisions),
		"Left": x(0), "Right": x(end), "Full": y(limit.Capacity), "One": y(1), "Empty": y(0),
	})
}

var picture = template.Must(template.New("trace").Parse(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 620 338" role="img" aria-labelledby="title" aria-describedby="answers">
<title id="title">The level of a bucket of {{.Limit.Capacity}} tokens, refilled at {{.Limit.RefillPerSec}} a second: requests of 1 token lower the level if it is at least 1, and are refused otherwise</title>
<desc id="answers">{{range $i, $mark := .Marks}}{{if $i}}; {{end}}{{$mark.Title}}{{end}}</desc>
<style>
  svg { color-scheme: light dark; font: 13px system-ui, sans-serif; --ground: #fff; --text: #566377; --edge: #d5dde8; --water: #1f7fd6; --good: #17794a; --bad: #b3261e }
  @media (prefers-color-scheme: dark) { svg { --ground: #18212c; --text: #a3b2c5; --edge: #2f3c4c; --water: #3f9bf0; --good: #7fdcac; --bad: #ff9d94 } }
  text { fill: var(--text) } path { fill: none; stroke-width: 2 } .end { text-anchor: end } .middle { text-anchor: middle }
  .ground { fill: var(--ground) } .edge { stroke: var(--edge) } .axis { stroke: var(--text) } .cap { stroke: var(--text); stroke-width: 1; stroke-dasharray: 6 4 }
  .area { fill: var(--water); opacity: .14 } .line { stroke: var(--water); stroke-width: 3; stroke-linejoin: round }
  .admitted { fill: var(--good) } .refused { stroke: var(--bad); stroke-width: 3; stroke-linecap: round } .wait { stroke: var(--bad); stroke-width: 1.5; stroke-dasharray: 2 3 } .label { fill: var(--bad) }
</style>
<rect class="ground" width="620" height="338" rx="12"/>
<text x="{{.Left}}" y="18">tokens</text>
<path class="edge" d="M{{.Left}},{{.One}}H{{.Right}}"/>
<path class="cap" d="M{{.Left}},{{.Full}}H{{.Right}}"/>
<text class="end" x="{{.Right}}" y="22">full: capacity {{.Limit.Capacity}}, refill {{.Limit.RefillPerSec}} a second</text>
<text class="end" x="36" y="{{.Full}}" dy="4">{{.Limit.Capacity}}</text>
<text class="end" x="36" y="{{.One}}" dy="4">1</text>
<text class="end" x="36" y="{{.Empty}}" dy="4">0</text>
<path class="area" d="{{.Line}} V{{.Empty}} H{{.Left}}z"/>
<path class="axis" d="M{{.Left}},{{.Empty}}H{{.Right}}"/>
{{- range $second, $x := .Seconds}}
<text class="middle" x="{{$x}}" y="{{$.Empty}}" dy="20">{{$second}} s</text>
{{- end}}
<path class="line" d="{{.Line}}"/>
{{- range .Marks}}
<g><title>{{.Title}}</title>
{{- if .OK}}<circle class="admitted" cx="{{.X}}" cy="{{.Down}}" r="5"/><circle class="admitted" cx="{{.X}}" cy="{{.Y}}" r="6"/>
{{- else}}<path class="refused" d="M{{.X}},{{.Y}}m-5-5l10 10m0-10l-10 10"/><path class="wait" d="M{{.X}},{{.Y}}m10 0H{{.Due}}m0-7v14"/><text class="label" x="{{.X}}" y="{{.Y}}" dx="12" dy="-5">{{.Label}}</text>
{{- end}}</g>
{{- end}}
<text class="end" x="{{.Right}}" y="326"><tspan class="admitted">●</tspan> admitted <tspan class="label">✕</tspan> refused, and until when</text>
</svg>
`))
