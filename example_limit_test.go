package tokenbucket_test

import (
	"fmt"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/aa014e13/tokenbucket"
)

// A reservation can be cancelled before it is due. Later its tokens are taken, and Refund
// gives them back.
func ExampleReservation() {
	mock := clock.NewMock()
	bucket := tokenbucket.MustNew(tokenbucket.PerSecond(2), tokenbucket.WithTokens(0), tokenbucket.WithClock(mock))
	job, err := bucket.Reserve(2)
	if err != nil {
		fmt.Println(err)
		return
	}
	mock.Add(job.Delay())
	fmt.Println("cancelled:", job.Cancel(), "left:", bucket.Tokens())
	_ = bucket.Refund(2)
	fmt.Println("left:", bucket.Tokens())
	// Output:
	// cancelled: false left: 0
	// left: 2
}

// A Decision has the numbers for the header fields of an answer.
func ExampleDecision() {
	limit := tokenbucket.Limit{Capacity: 10, RefillPerSec: 0.5}
	state := limit.Full(0)
	for _, cost := range []float64{7, 5} {
		var d tokenbucket.Decision
		state, d = limit.Take(state, 0, cost)
		seconds, _ := d.RetryAfter()
		fmt.Printf("ok %v, remaining %d of %v, full in %v, retry after %d s\n", d.OK, d.Remaining(), d.Limit.Capacity, d.Reset(), seconds)
	}
	// Output:
	// ok true, remaining 3 of 10, full in 14s, retry after 0 s
	// ok false, remaining 3 of 10, full in 14s, retry after 4 s
}

// Within passes at most 30 tokens in any minute, wherever the minute starts. Per may pass
// up to 60.
func ExampleWithin() {
	fmt.Println(tokenbucket.Within(30, time.Minute, 3))
	fmt.Println(tokenbucket.PerMinute(30))
	// Output:
	// {3 0.45}
	// {30 0.5}
}
