package fit_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/fit"
)

func Example() {
	arrivals := []fit.Arrival{{0, 1}, {0, 1}, {0, 1}, {0, 1}, {time.Second, 1}, {2 * time.Second, 1}}
	capacity, err := fit.Capacity(slices.Values(arrivals), 0.5, 0)
	fmt.Println(capacity, err)
	// Output: 5 <nil>
}

// Uploads of one user, from a log. A megabyte costs one token.
func ExampleArrival() {
	var arrivals []fit.Arrival
	start := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	for _, upload := range []struct {
		at    string
		bytes float64
	}{
		{"2026-03-01T09:00:00Z", 30e6},
		{"2026-03-01T09:00:05Z", 20e6},
		{"2026-03-01T09:01:00Z", 25e6},
	} {
		at, err := time.Parse(time.RFC3339, upload.at)
		if err != nil {
			fmt.Println(err)
			return
		}
		arrivals = append(arrivals, fit.Arrival{At: at.Sub(start), Cost: upload.bytes / 1e6})
	}
	for _, perSecond := range []float64{0.5, 1, 2} {
		capacity, err := fit.Capacity(slices.Values(arrivals), perSecond, 0)
		fmt.Println(perSecond, "MB/s need a capacity of", capacity, "MB", err)
	}
	// Output:
	// 0.5 MB/s need a capacity of 47.5 MB <nil>
	// 1 MB/s need a capacity of 45 MB <nil>
	// 2 MB/s need a capacity of 40 MB <nil>
}

// morning are the requests of three users in some seconds: ann sends five at once, bob one
// each second, and eve two at once, and again 2 s later.
func morning(add func(user string, a fit.Arrival) error) {
	for second, users := range [][]string{
		{"ann", "ann", "ann", "ann", "ann", "bob", "eve", "eve"}, {"bob"}, {"bob", "eve", "eve"},
	} {
		for _, user := range users {
			if err := add(user, fit.Arrival{At: time.Duration(second) * time.Second, Cost: 1}); err != nil {
				fmt.Println(err)
			}
		}
	}
}

// Each user has a bucket. How large must they be if 1 of 12 requests may be refused?
func ExampleTraffic() {
	traffic := fit.NewTraffic(0)
	traffic.Keep() // for shares above 0
	morning(traffic.Add)
	fmt.Println(traffic.Len(), "users,", traffic.Count(), "requests")
	for _, share := range []float64{0, 1. / 12} {
		capacity, err := traffic.Capacity(1, share)
		fmt.Println(capacity, err)
	}
	// Output:
	// 3 users, 12 requests
	// 5 <nil>
	// 4 <nil>
}

// A smaller capacity would refuse these users first.
func ExampleNeed() {
	traffic := fit.NewTraffic(0)
	morning(traffic.Add)
	for _, need := range traffic.Neediest(1, 2) {
		fmt.Println(need.Key, "needs a capacity of", need.Capacity)
	}
	// Output:
	// ann needs a capacity of 5
	// eve needs a capacity of 2
}

// newTrial replays the morning with a capacity of 3 and one token each 2 s.
func newTrial() (*fit.Trial, error) {
	trial, err := fit.NewTrial(tokenbucket.Limit{Capacity: 3, RefillPerSec: 0.5})
	if err != nil {
		return nil, err
	}
	morning(func(user string, a fit.Arrival) error {
		_, err := trial.Add(user, a)
		return err
	})
	return trial, nil
}

// A Trial reports what a limit would have refused.
func ExampleTrial() {
	trial, err := newTrial()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(trial.Refused(), "of", trial.Requests(), "requests refused")
	fmt.Println("waits: median", trial.Wait(0.5), "longest", trial.Wait(1))
	// Output:
	// 2 of 12 requests refused
	// waits: median 2s longest 2s
}

func ExampleRefusal() {
	trial, err := newTrial()
	if err != nil {
		fmt.Println(err)
		return
	}
	if first, ok := trial.First(); ok {
		fmt.Printf("%v: %s, cost %v, has to wait %v\n", first.At, first.Key, first.Cost, first.Wait)
	}
	// Output: 0s: ann, cost 1, has to wait 2s
}

func ExampleKeyRefusals() {
	trial, err := newTrial()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, user := range trial.Keys() {
		fmt.Printf("%s: %d of %d refused\n", user.Key, user.Refused, user.Requests)
	}
	// Output: ann: 2 of 5 refused
}
