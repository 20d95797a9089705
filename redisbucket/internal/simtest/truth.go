package simtest

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// truth is a bucket as it should be: it counts true time, and depends only on the runs. It
// is stored beside the data and lost with it, since tokens may be granted again after a loss
// of data.
type truth struct {
	level float64
	at    time.Time
}

// judgeLocked applies a run, and returns the true level after it. Like scripts, it counts
// whole microseconds.
func (s *server) judgeLocked(r *run) float64 {
	capacity, refill := parse(r.args[3]), parse(r.args[4])
	now := r.at.Truncate(time.Microsecond)
	t, known := s.truths[r.key]
	if !known {
		t = truth{capacity, now}
	}
	t.level = math.Min(capacity, t.level+now.Sub(t.at).Seconds()*refill)
	t.level = math.Min(capacity, t.level-r.taken)
	t.at = now
	s.truths[r.key] = t
	return t.level
}

// taken returns how many tokens a run took from its bucket.
func taken(r *run) float64 {
	word, _, _ := strings.Cut(r.answer, " ")
	if r.looks() || word == "0" {
		return 0
	}
	_, further, _ := strings.Cut(word, "+")
	return r.cost() + parse(further)
}

func (r *run) looks() bool     { return r.args[2] == "-2" }
func (r *run) charges() bool   { return r.args[2] == "-1" }
func (r *run) cost() float64   { return parse(r.args[1]) }
func (r *run) isHeard() bool   { return !r.read.IsZero() }
func (r *run) refill() float64 { return parse(r.args[4]) }

// patience returns how long the caller was ready to wait.
func (r *run) patience() time.Duration {
	return time.Duration(min(parse(r.args[2])*1e3, math.MaxInt64/2))
}

// due returns when the tokens that a run took are refilled, by the value that it wrote.
func (r *run) due() time.Time {
	words := strings.Fields(r.after) // limits seconds microseconds balance anchor
	if len(words) < 5 {
		return r.at
	}
	level := parse(words[3]) + (float64(r.clock.UnixMicro())-parse(words[4]))/1e6*r.refill()
	return r.at.Add(time.Duration(max(0, -level/r.refill()) * float64(time.Second)))
}

// parse returns a number, 0 for none.
func parse(word string) float64 {
	x, _ := strconv.ParseFloat(word, 64)
	return x
}
