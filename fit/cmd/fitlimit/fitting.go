package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/fit"
	"github.com/aa014e13/tokenbucket/fit/internal/accesslog"
)

// fitting holds the results of the logs.
type fitting struct {
	Requests     int
	Keys         int
	From, To     time.Time
	Broken       int    `json:",omitempty"`
	FirstBroken  string `json:",omitempty"`
	Late         int    `json:",omitempty"`
	WholeSeconds bool   // the times are whole seconds, so capacities may be wrong by Band
	Shares       []float64
	Rows         []row       `json:",omitempty"`
	Neediest     []need      `json:",omitempty"`
	Tries        []candidate `json:",omitempty"`

	traffic *fit.Traffic
	perKey  bool
}

// row is a refill with the capacities that it needs.
type row struct {
	Refill     float64   // tokens per second
	Capacities []float64 // tokens, for each of Shares
	Band       float64   // tokens by which the capacities may be too high or too low
}

// need is a key that needs one of the largest capacities at a refill. If the capacity is
// lowered, the requests of such keys are refused first.
type need struct {
	Key      string
	Capacity float64 // tokens
	Refill   float64 // tokens per second
}

// candidate is a limit that was tried.
type candidate struct {
	Limit       tokenbucket.Limit
	Refused     int
	Share       float64
	RefusedKeys int
	First       *refusal `json:",omitempty"`
	MedianWait  time.Duration
	LongestWait time.Duration
	MostRefused []fit.KeyRefusals `json:",omitempty"`
	trial       *fit.Trial
}

type refusal struct {
	Key  string
	At   time.Time
	Cost float64
	Wait time.Duration
}

// fitLog reads the whole log.
func fitLog(c *config, log *accesslog.Log) (*fitting, error) {
	f := &fitting{Shares: c.shares, perKey: c.log.Key != accesslog.None, traffic: fit.NewTraffic(c.least)}
	if len(c.tries) == 0 && c.shares.largest() > 0 {
		f.traffic.Keep()
	}
	for _, limit := range c.tries {
		trial, err := fit.NewTrial(limit)
		if err != nil {
			return nil, err
		}
		f.Tries = append(f.Tries, candidate{Limit: limit, trial: trial})
	}
	if err := f.read(log); err != nil {
		return nil, err
	}
	if f.Requests == 0 {
		if f.Broken > 0 {
			return nil, fmt.Errorf("none of %d lines could be read: check the format and the names of fields; the first is %s", f.Broken, f.FirstBroken)
		}
		return nil, errors.New("the log is empty: pass a log with requests")
	}
	f.finishTries(c.keys)
	return f, f.fillRows(c)
}

func (f *fitting) read(log *accesslog.Log) error {
	for {
		record, err := log.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if f.Requests == 0 {
			f.From = record.At
		}
		f.To = record.At
		f.Requests++
		a := fit.Arrival{At: record.At.Sub(f.From), Cost: record.Cost}
		if err := f.traffic.Add(record.Key, a); err != nil {
			return err
		}
		for _, t := range f.Tries {
			if _, err := t.trial.Add(record.Key, a); err != nil {
				return err
			}
		}
	}
	f.Keys = f.traffic.Len()
	f.Broken, f.FirstBroken, f.Late, f.WholeSeconds = log.Broken, log.FirstBroken, log.Late, log.HasWholeSeconds()
	return nil
}

func (f *fitting) finishTries(keys int) {
	for i := range f.Tries {
		t := &f.Tries[i]
		t.Refused = t.trial.Refused()
		t.Share = float64(t.Refused) / float64(f.Requests)
		t.MedianWait, t.LongestWait = t.trial.Wait(0.5), t.trial.Wait(1)
		t.MostRefused = t.trial.Keys()
		t.RefusedKeys = len(t.MostRefused)
		t.MostRefused = t.MostRefused[:min(keys, t.RefusedKeys)]
		if first, ok := t.trial.First(); ok {
			t.First = &refusal{first.Key, f.From.Add(first.At), first.Cost, first.Wait}
		}
	}
}

// fillRows finds the capacity for each refill and share. If limits are tried, it finds
// only the capacities that refuse nothing.
func (f *fitting) fillRows(c *config) error {
	refills := []float64(c.refills)
	if len(refills) == 0 {
		refills = f.chooseRefills(c.least)
	}
	if len(c.tries) > 0 {
		f.Shares = []float64{0}
	}
	for _, refill := range refills {
		r := row{Refill: refill}
		if f.WholeSeconds {
			r.Band = refill
		}
		for _, share := range f.Shares {
			capacity, err := f.traffic.Capacity(refill, share)
			if err != nil {
				return err
			}
			r.Capacities = append(r.Capacities, capacity)
		}
		f.Rows = append(f.Rows, r)
	}
	refill := f.chosen().Refill
	for _, n := range f.traffic.Neediest(refill, c.keys) {
		if n.Capacity > 0 { // the other keys sent only free requests
			f.Neediest = append(f.Neediest, need{n.Key, n.Capacity, refill})
		}
	}
	return nil
}

// chosen returns the row with the least refill that is large enough: even the largest refill
// needs a capacity that is at most a fifth lower than with this one.
func (f *fitting) chosen() row {
	enough := f.Rows[len(f.Rows)-1].Capacities[0] / 0.8
	return f.Rows[slices.IndexFunc(f.Rows, func(r row) bool { return r.Capacities[0] <= enough })]
}

// chooseRefills returns up to twenty refills in equal ratios. The first is about the average
// rate of the neediest key: with it, the capacity is at most what is refilled in a twentieth of
// the log's time. The last is the refill above which the capacity does not fall any more, but
// at most about a thousand times the first.
func (f *fitting) chooseRefills(least float64) []float64 {
	capacity := func(refill float64) float64 {
		c, err := f.traffic.Capacity(refill, 0)
		if errors.Is(err, tokenbucket.ErrInvalidLimit) {
			return math.Inf(1) // above 2^42
		}
		return c
	}
	low := max(least, 1e-6)
	for span := f.To.Sub(f.From).Seconds(); span > 0 && capacity(low) > low*span/20 && low < 1e12; {
		low *= 1.25
	}
	high := low * 4
	for floor := capacity(1e12); capacity(high) > floor && high < low*1000; {
		high *= 1.25
	}
	refills := make([]float64, 20)
	for i := range refills {
		refills[i] = roundTo2Digits(low*math.Pow(high/low, float64(i)/19), least)
	}
	return slices.Compact(refills)
}

// roundTo2Digits rounds a number, which is not below least, to two digits. If the result would
// be below least, it rounds up or returns least.
func roundTo2Digits(x, least float64) float64 {
	round := func(x float64) float64 {
		rounded, _ := strconv.ParseFloat(strconv.FormatFloat(x, 'e', 1, 64), 64)
		return rounded
	}
	if rounded := round(x); rounded >= least {
		return rounded
	}
	unit := math.Pow(10, math.Floor(math.Log10(x))-1)
	return max(least, round(x+unit/2))
}

func (n numbers) largest() (largest float64) {
	for _, x := range n {
		largest = max(largest, x)
	}
	return largest
}
