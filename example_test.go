package tokenbucket_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/aa014e13/tokenbucket"
)

func Example() {
	// A client may export (5 tokens) and read (1 token): up to 10 tokens at once, then one every 2 s.
	bucket := tokenbucket.MustNew(tokenbucket.Limit{Capacity: 10, RefillPerSec: 0.5}, tokenbucket.WithClock(clock.NewMock()))

	for _, cost := range []float64{5, 1, 5} {
		d := bucket.Take(cost)
		if d.OK {
			fmt.Println("200 OK, remaining", d.Remaining())
			continue
		}
		seconds, _ := d.RetryAfter()
		fmt.Println("429 Too Many Requests, Retry-After", seconds)
	}
	// Output:
	// 200 OK, remaining 5
	// 200 OK, remaining 4
	// 429 Too Many Requests, Retry-After 2
}

// The arithmetic needs no clock: instants are arguments. Capacity 3, one token
// every 2 s, a request a second.
func ExampleLimit_Take() {
	limit := tokenbucket.Limit{Capacity: 3, RefillPerSec: 0.5}
	state := limit.Full(0)
	for _, second := range []time.Duration{0, 0, 0, 0, 1, 2, 3, 4} {
		var d tokenbucket.Decision
		state, d = limit.Take(state, second*time.Second, 1)
		fmt.Printf("at %d s: ok %-5v wait %v, %v tokens left\n", second, d.OK, d.Wait, d.Tokens)
	}
	// Output:
	// at 0 s: ok true  wait 0s, 2 tokens left
	// at 0 s: ok true  wait 0s, 1 tokens left
	// at 0 s: ok true  wait 0s, 0 tokens left
	// at 0 s: ok false wait 2s, 0 tokens left
	// at 1 s: ok false wait 1s, 0.5 tokens left
	// at 2 s: ok true  wait 0s, 0 tokens left
	// at 3 s: ok false wait 1s, 0.5 tokens left
	// at 4 s: ok true  wait 0s, 0 tokens left
}

// The wait is the time until the missing tokens are refilled, not the time for the whole
// cost.
func ExampleRetryAfter() {
	limit := tokenbucket.Limit{Capacity: 10, RefillPerSec: 0.5}
	bucket := tokenbucket.MustNew(limit, tokenbucket.WithTokens(2.25), tokenbucket.WithClock(clock.NewMock()))

	wait, ok := bucket.TryAcquire(5)
	seconds, _ := tokenbucket.RetryAfter(wait)
	fmt.Println(ok, wait, "Retry-After:", seconds)
	// Output: false 5.5s Retry-After: 6
}

// The same code sleeps on the real clock in production and on a mock in a test.
func ExampleBucket_Wait() {
	mock := clock.NewMock()
	bucket := tokenbucket.MustNew(tokenbucket.Limit{Capacity: 1, RefillPerSec: 0.5}, tokenbucket.WithClock(mock))
	start := mock.Now()

	fetch := func(page string) {
		if err := bucket.Wait(context.Background(), 1); err != nil {
			fmt.Println(page, err)
			return
		}
		fmt.Println(page, "fetched at", mock.Since(start))
	}

	fetch("login")
	done := make(chan struct{})
	go func() {
		defer close(done)
		fetch("catalogue")
	}()
	for bucket.Waiting() == 0 { // until the waiter has set its timer
		time.Sleep(time.Millisecond)
	}
	mock.Add(2 * time.Second)
	<-done
	// Output:
	// login fetched at 0s
	// catalogue fetched at 2s
}

// A wait that would outlast the deadline fails at once, and takes nothing.
func ExampleDeadlineError() {
	bucket := tokenbucket.MustNew(tokenbucket.PerHour(1))
	bucket.TryAcquire(1)

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := bucket.Wait(ctx, 1)
	var deadline *tokenbucket.DeadlineError
	if errors.As(err, &deadline) {
		fmt.Println("would take", deadline.Wait.Round(time.Minute))
	}
	fmt.Println(errors.Is(err, context.DeadlineExceeded))
	// Output:
	// would take 1h0m0s
	// true
}

// A request must meet both limits. Otherwise it takes nothing from either.
func ExampleWithLimit() {
	bucket := tokenbucket.MustNew(tokenbucket.Within(29, time.Minute, 2),
		tokenbucket.WithLimit(tokenbucket.Within(299, time.Hour, 28)),
		tokenbucket.WithClock(clock.NewMock()))

	bucket.TryAcquire(2)
	d := bucket.Take(1)
	fmt.Println(d.OK, d.Wait, "bound by a burst of", d.Limit.Capacity)
	// Output: false 2.222222223s bound by a burst of 2
}

// The cost of a job may be known only afterwards: take an estimate, then settle the
// difference.
func ExampleBucket_Refund() {
	points := tokenbucket.MustNew(tokenbucket.PerHour(5000), tokenbucket.WithClock(clock.NewMock()))

	points.TryAcquire(100)
	_ = points.Refund(60) // the job cost 40
	fmt.Println(points.Tokens())
	_ = points.Charge(10) // one page more than estimated
	fmt.Println(points.Tokens())
	// Output:
	// 4960
	// 4950
}

func ExampleCosts() {
	costs := tokenbucket.Costs{"export": 5, "ping": 0}
	fmt.Println(costs.Of("export"), costs.Of("ping"), costs.Of("read"))
	fmt.Println(tokenbucket.Costs{"export": 50}.Validate(10))
	// Output:
	// 5 0 1
	// price of "export": tokenbucket: cost exceeds the capacity: cost 50, capacity 10: split the request or raise the capacity
}

func ExampleParseRetryAfter() {
	now := time.Date(2026, time.November, 6, 8, 49, 37, 0, time.UTC)
	fmt.Println(tokenbucket.ParseRetryAfter("120", now))
	fmt.Println(tokenbucket.ParseRetryAfter("Fri, 06 Nov 2026 08:50:07 GMT", now))
	// Output:
	// 2m0s <nil>
	// 30s <nil>
}
