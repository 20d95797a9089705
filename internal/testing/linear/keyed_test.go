package linear

import (
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/aa014e13/tokenbucket/keyed"
)

// keyedHistory returns the history of calls for one key, and its model. In the model,
// calls for other keys do nothing but read the clock.
func keyedHistory(t *testing.T) func(seed uint64) (porcupine.Model, *history) {
	return func(seed uint64) (porcupine.Model, *history) {
		limits := shapes[seed%uint64(len(shapes))][0]
		h := new(history)
		opts := []keyed.Option{keyed.WithClock(h.clock())}
		for _, l := range limits[1:] {
			opts = append(opts, keyed.WithLimit(l))
		}
		buckets, err := keyed.New[string](limits[0], opts...)
		if err != nil {
			t.Fatal(err)
		}
		h.run(seed, 4, 25, func(c *client) { callKey(c, buckets) })
		return newModel(limits, true), h
	}
}

func callKey(c *client, buckets *keyed.Buckets[string]) {
	const key = "k"
	costs := []float64{float64([]int{1, 1, 1, 2, 3, 0, 50}[c.random.IntN(7)])}
	switch c.random.IntN(16) {
	case 0:
		c.record(input{method: "Refund", costs: costs}, func(out *output) { out.err = buckets.Refund(key, costs[0]) })
	case 1:
		c.record(input{method: "Charge", costs: costs}, func(out *output) { out.err = buckets.Charge(key, costs[0]) })
	case 2:
		d := time.Duration(1 + c.random.IntN(20_000))
		c.record(input{method: "Pause", pause: d}, func(*output) { buckets.Pause(key, d) })
	case 3, 4:
		c.record(input{method: "Forget"}, func(*output) { buckets.Forget(key) })
	case 5, 6, 7:
		c.record(input{method: "Take", costs: costs}, func(out *output) { out.decision = buckets.Take(key, costs[0]) })
	default:
		c.record(input{method: "TryAcquire", costs: costs}, func(out *output) { out.wait, out.ok = buckets.TryAcquire(key, costs[0]) })
	}
}

func TestKeyedBucketsAreLinearizable(t *testing.T) { checkAll(t, keyedHistory(t)) }
