package fit

// longHull is a number of vertices. If a hull has that many, arrivals are added in batches.
const longHull = 16

// batchSize is the number of arrivals in a batch.
const batchSize = 64

// batch holds new arrivals of a demand whose hull is long. Each of them would have to be
// compared with each vertex of that hull. But only few arrivals matter: a window that begins
// before the batch can be the maximum only if it ends on the upper convex hull of the batch.
// As the refill grows, the maximum window begins at a later vertex and ends at an earlier
// one. So one walk along both hulls visits every window that can be the maximum.
type batch struct {
	count  int
	starts []vertex // the lower hull of the batch; slopes rise
	ends   []vertex // the upper hull of the batch, at the tops of its steps; slopes fall
}

func (d *demand) addToBatch(foot, top vertex, least float64) {
	b := d.batch
	b.starts = extendHull(b.starts, foot)
	for _, v := range b.starts {
		d.addWindow(v.to(top), least)
	}
	b.ends = extendUpperHull(b.ends, top)
	if b.count++; b.count == batchSize {
		d.finishBatch(least)
	}
}

// extendUpperHull returns an upper convex hull with one more vertex, which is not earlier
// or lower than the others.
func extendUpperHull(hull []vertex, v vertex) []vertex {
	n := len(hull)
	if n > 0 && hull[n-1].at == v.at {
		n--
	}
	for n >= 2 && !isBelow(hull[n-2].to(v), hull[n-2].to(hull[n-1])) {
		n--
	}
	return append(hull[:n], v)
}

// finishBatch adds the windows that end in the batch and begin before it, and moves the
// vertices of the batch into the hull.
func (d *demand) finishBatch(least float64) {
	b := d.batch
	if b == nil || b.count == 0 {
		return
	}
	d.addWindowsInto(b.ends, least)
	for _, v := range b.starts {
		d.hull = extendHull(d.hull, v)
	}
	d.trim(least)
	*b = batch{starts: b.starts[:0], ends: b.ends[:0]}
	if len(d.hull) < longHull {
		d.batch = nil
	}
}

// addWindowsInto adds the windows that begin at the hull and end at the ends, in the order of
// the refills at which they are the maximum: the least refill first.
func (d *demand) addWindowsInto(ends []vertex, least float64) {
	i, j := 0, len(ends)-1
	for {
		d.addWindow(d.hull[i].to(ends[j]), least)
		isLastStart, isFirstEnd := i+1 == len(d.hull), j == 0
		switch {
		case isLastStart && isFirstEnd:
			return
		case isFirstEnd || !isLastStart && isBelow(d.hull[i].to(d.hull[i+1]), ends[j-1].to(ends[j])):
			i++
		default:
			j--
		}
	}
}
