package fit

import (
	"math"
	"slices"
	"sort"
	"time"
)

// demand summarises the arrivals of one bucket. Arrivals are added one at a time. After
// that, the method capacity returns the least capacity for a refill. The argument least
// is the same in all calls, and no refill may be below it.
//
// In the plane of time and tokens, the arrivals are a staircase that rises by the cost of
// each arrival. From the foot of each step, draw a line to the right whose slope is the
// refill. A capacity suffices if no step is above any such line by more than the capacity:
//
//	capacity(refill) = max over windows of tokens - refill * span
//
// For all refills, only two sets matter. A window that becomes the maximum begins at a
// vertex of the lower convex hull of the staircase. And for each window, the formula gives
// a line over the refill: the windows that are the maximum at some refill form the upper
// envelope of these lines. Both sets are small for random arrivals whose mean rate is
// constant: the hull of n arrivals has about log n vertices. If the rate rises for hours, the
// hull has hundreds; then a demand adds its arrivals in batches.
type demand struct {
	spent   float64       // tokens, since the first vertex
	latest  time.Duration // the latest instant of an arrival, also of a free one
	hull    []vertex      // slopes rise, all of them above least
	windows []window      // spans and tokens rise
	batch   *batch        // arrivals that are not in hull yet; nil while the hull is short
}

// vertex is a point of the staircase: at the foot of a step in a lower hull, at its top in an
// upper hull.
type vertex struct {
	at    time.Duration
	spent float64 // tokens up to this point
}

// window is a stretch of time that begins and ends with an arrival.
type window struct {
	span   float64 // nanoseconds
	tokens float64
}

// add adds an arrival at the latest instant. The cost is above 0. capacity must not be called
// for refills below least.
func (d *demand) add(cost, least float64) {
	foot := vertex{d.latest, d.spent}
	d.spent += cost
	top := vertex{d.latest, d.spent}
	if d.batch == nil && len(d.hull) >= longHull {
		d.batch = &batch{}
	}
	if d.batch != nil {
		d.addToBatch(foot, top, least)
		return
	}
	d.hull = extendHull(d.hull, foot)
	d.trim(least)
	top.spent = d.spent // trim may have changed it
	for _, v := range d.hull {
		d.addWindow(v.to(top), least)
	}
}

// extendHull returns a lower convex hull with one more vertex, which is not earlier or
// lower than the others.
func extendHull(hull []vertex, v vertex) []vertex {
	n := len(hull)
	if n > 0 && hull[n-1].at == v.at {
		return hull // the hull has a lower point at this instant already
	}
	for n >= 2 && !isBelow(hull[n-2].to(hull[n-1]), hull[n-2].to(v)) {
		n--
	}
	return append(hull[:n], v)
}

// trim drops the vertices before the latest one at which a bucket with the least refill
// is full. Buckets with larger refills are full there, too.
func (d *demand) trim(least float64) {
	first := 0
	for first+1 < len(d.hull) && d.hull[first].to(d.hull[first+1]).gain(least) <= 0 {
		first++
	}
	if first > 0 {
		d.rebase(first)
	}
}

// rebase drops the vertices before first, and counts the tokens from there.
func (d *demand) rebase(first int) {
	d.hull = slices.Delete(d.hull, 0, first)
	base := d.hull[0].spent
	for i := range d.hull {
		d.hull[i].spent -= base
	}
	d.spent -= base
}

func (v vertex) to(later vertex) window {
	return window{elapsed(v.at, later.at), later.spent - v.spent}
}

// gain returns a billion times the tokens that a refill leaves unpaid in the window. The
// product with whole nanoseconds is exact for ordinary refills.
func (w window) gain(refillPerSec float64) float64 {
	return w.tokens*1e9 - float64(w.span*refillPerSec) // float64 keeps the product from being fused with the subtraction
}

// addWindow adds a window to the envelope if it is the maximum at any refill from least on.
func (d *demand) addWindow(w window, least float64) {
	i := sort.Search(len(d.windows), func(i int) bool { return d.windows[i].span >= w.span })
	if i < len(d.windows) && d.windows[i].span == w.span && d.windows[i].tokens >= w.tokens {
		return
	}
	if i > 0 {
		more := d.windows[i-1].more(w)
		if more.gain(least) <= 0 {
			return
		}
		if i < len(d.windows) && !isBelow(d.windows[i-1].more(d.windows[i]), more) {
			return
		}
	}
	from, to := i, i
	for from >= 2 && !isBelow(d.windows[from-2].more(w), d.windows[from-2].more(d.windows[from-1])) {
		from--
	}
	for to < len(d.windows) && w.more(d.windows[to]).gain(least) <= 0 {
		to++
	}
	for to+1 < len(d.windows) && !isBelow(w.more(d.windows[to+1]), w.more(d.windows[to])) {
		to++
	}
	d.windows = slices.Replace(d.windows, from, to, w)
}

// more returns by how much a longer window exceeds w.
func (w window) more(longer window) window {
	return window{longer.span - w.span, longer.tokens - w.tokens}
}

// isBelow reports whether a has fewer tokens for its span than b. The products are
// compared exactly, so that evenly spaced arrivals of the same whole cost leave at most two
// vertices and two windows.
func isBelow(a, b window) bool {
	left, right := a.tokens*b.span, b.tokens*a.span
	if left != right {
		return left < right
	}
	return math.FMA(a.tokens, b.span, -left) < math.FMA(b.tokens, a.span, -right)
}

// capacity returns the least capacity that refuses nothing, in tokens.
func (d *demand) capacity(refillPerSec, least float64) (tokens float64) {
	d.finishBatch(least)
	for _, w := range d.windows {
		tokens = max(tokens, w.gain(refillPerSec)/1e9)
	}
	return tokens
}
