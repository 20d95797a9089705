package tokenbucket_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/aa014e13/tokenbucket"
)

// The caller sleeps by itself, and gives up a place that it does not need.
func ExampleBucket_Reserve() {
	mock := clock.NewMock()
	bucket := tokenbucket.MustNew(tokenbucket.PerSecond(1), tokenbucket.WithTokens(0), tokenbucket.WithClock(mock))
	first, _ := bucket.Reserve(1)
	second, _ := bucket.Reserve(1)
	fmt.Println("delays:", first.Delay(), second.Delay())
	fmt.Println("cancelled:", first.Cancel())
	fmt.Println("delay:", second.Delay())
	mock.Add(time.Second)
	fmt.Println("paid:", second.Delay() == 0)
	// Output:
	// delays: 1s 2s
	// cancelled: true
	// delay: 1s
	// paid: true
}

// The caller stores the states and guards them.
func ExampleLimits() {
	limits := tokenbucket.Limits{tokenbucket.PerSecond(2), tokenbucket.PerMinute(30)}
	states := make([]tokenbucket.State, len(limits))
	limits.Fill(states, 0)
	for range 3 {
		wait, ok := limits.TryAcquire(states, 0, 1)
		fmt.Println(ok, wait)
	}
	fmt.Println(limits.Tokens(states, time.Second), "left a second later")
	// Output:
	// true 0s
	// true 0s
	// false 500ms
	// 2 left a second later
}

// After a restart a client gets no second burst, and the bucket refills for the time in
// between.
func ExampleState() {
	mock := clock.NewMock()
	limit := tokenbucket.Limit{Capacity: 10, RefillPerSec: 0.5}
	before := tokenbucket.MustNew(limit, tokenbucket.WithClock(mock))
	before.TryAcquire(9)
	origin, states := before.State() // store both

	mock.Add(4 * time.Second)
	after := tokenbucket.MustNew(limit, tokenbucket.WithClock(mock), tokenbucket.WithState(origin, states))
	fmt.Println(after.Tokens())
	// Output: 3
}

// A test sets the time of a clock.
func ExampleClock() {
	var mock tokenbucket.Clock = clock.NewMock()
	bucket := tokenbucket.MustNew(tokenbucket.PerMinute(1), tokenbucket.WithClock(mock))
	fmt.Println(bucket.TryAcquire(1))
	fmt.Println(bucket.TryAcquire(1))
	mock.(*clock.Mock).Add(time.Minute)
	fmt.Println(bucket.TryAcquire(1))
	// Output:
	// 0s true
	// 1m0s false
	// 0s true
}

// A server said Retry-After: 30.
func ExampleBucket_Pause() {
	bucket := tokenbucket.MustNew(tokenbucket.PerSecond(5), tokenbucket.WithClock(clock.NewMock()))
	bucket.Pause(30 * time.Second)
	wait, ok := bucket.TryAcquire(1)
	fmt.Println(ok, wait, "the pause, and the refill of one token")
	// Output: false 30.2s the pause, and the refill of one token
}

// Waiters notice new limits at once.
func ExampleBucket_SetLimits() {
	bucket := tokenbucket.MustNew(tokenbucket.PerMinute(6), tokenbucket.WithTokens(0), tokenbucket.WithClock(clock.NewMock()))
	r, _ := bucket.Reserve(1)
	fmt.Println(r.Delay())
	if err := bucket.SetLimits(tokenbucket.PerMinute(60)); err != nil {
		fmt.Println(err)
	}
	fmt.Println(r.Delay(), bucket.Limits())
	// Output:
	// 10s
	// 1s [{60 1}]
}

// A client has solved a captcha: its debt is forgiven.
func ExampleBucket_Fill() {
	bucket := tokenbucket.MustNew(tokenbucket.PerMinute(5), tokenbucket.WithClock(clock.NewMock()))
	_ = bucket.Charge(100)
	fmt.Println(bucket.Tokens())
	bucket.Fill()
	fmt.Println(bucket.Tokens())
	// Output:
	// -95
	// 5
}

// One caller may wait; the next one gets an error at once.
func ExampleWithMaxWaiters() {
	bucket := tokenbucket.MustNew(tokenbucket.PerSecond(1),
		tokenbucket.WithTokens(0), tokenbucket.WithMaxWaiters(1), tokenbucket.WithClock(clock.NewMock()))
	_, _ = bucket.Reserve(1)
	err := bucket.Wait(context.Background(), 1)
	fmt.Println(errors.Is(err, tokenbucket.ErrTooManyWaiters))
	fmt.Println(err)
	// Output:
	// true
	// tokenbucket: too many waiters: 1 are queued already: retry later or raise WithMaxWaiters
}

// An API allows 3 requests and 1000 tokens a minute. Each request costs 1 of the first and
// 400 of the second.
func ExampleBucket_TakeEach() {
	bucket := tokenbucket.MustNew(tokenbucket.PerMinute(3),
		tokenbucket.WithLimit(tokenbucket.PerMinute(1000)), tokenbucket.WithClock(clock.NewMock()))
	for range 3 {
		d := bucket.TakeEach(1, 400)
		fmt.Printf("ok %v, wait %v, limit %d has %v left\n", d.OK, d.Wait, d.LimitIndex, d.Tokens)
	}
	// Output:
	// ok true, wait 0s, limit 0 has 2 left
	// ok true, wait 0s, limit 1 has 200 left
	// ok false, wait 12s, limit 1 has 200 left
}

// A request to a language model may use 1200 tokens, and used 900.
func ExampleBucket_WaitEach() {
	ctx := context.Background()
	ask := func(context.Context) (used float64) { return 900 }

	// 60 requests and 90,000 tokens in any minute.
	bucket := tokenbucket.MustNew(tokenbucket.Within(60, time.Minute, 10),
		tokenbucket.WithLimit(tokenbucket.Within(90_000, time.Minute, 15_000)), tokenbucket.WithClock(clock.NewMock()))

	estimate := 1200.0 // the prompt and the longest answer
	if err := bucket.WaitEach(ctx, 1, estimate); err != nil {
		log.Fatal(err)
	}
	used := ask(ctx)                                            // sends the request
	if err := bucket.RefundEach(0, estimate-used); err != nil { // gives back what was not used
		log.Fatal(err)
	}

	d := bucket.PeekEach(1, 15_000)
	fmt.Println(d.Tokens, "tokens are left; 15000 need a wait of", d.Wait)
	// Output: 14100 tokens are left; 15000 need a wait of 720ms
}

// A configuration without a limit needs no special case.
func ExampleUnlimited() {
	limits := map[string]tokenbucket.Limit{
		"free":     tokenbucket.PerHour(1),
		"internal": tokenbucket.Unlimited(),
	}
	for _, plan := range []string{"free", "internal"} {
		bucket := tokenbucket.MustNew(limits[plan], tokenbucket.WithClock(clock.NewMock()))
		bucket.TryAcquire(1)
		wait, ok := bucket.TryAcquire(1)
		fmt.Println(plan, ok, wait)
	}
	// Output:
	// free false 1h0m0s
	// internal true 0s
}
