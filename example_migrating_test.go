package tokenbucket_test

import (
	"context"
	"fmt"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/aa014e13/tokenbucket"
)

// These are the counterparts of rate.Limit and its functions. docs/migrating.md has each
// line of the examples whose names begin with migrating, and says what differs.
func Example_migratingLimits() {
	bucket, err := tokenbucket.New(tokenbucket.Limit{Capacity: 10, RefillPerSec: 2})
	fmt.Println(err)
	fmt.Println(bucket.Limits())
	fmt.Println(tokenbucket.PerSecond(2))
	fmt.Println(tokenbucket.Per(1, 500*time.Millisecond))
	fmt.Println(tokenbucket.Unlimited().Validate())
	fmt.Println(tokenbucket.Limit{Capacity: 3}.Validate())
	fmt.Println(new(tokenbucket.Bucket).TryAcquire(1))
	fmt.Println(tokenbucket.Never)
	// Output:
	// <nil>
	// [{10 2}]
	// {2 2}
	// {1 2}
	// <nil>
	// tokenbucket: invalid limit: refill 0: choose a finite one above 0 tokens per second
	// 2562047h47m16.854775807s false
	// 2562047h47m16.854775807s
}

func Example_migratingAllow() {
	bucket := tokenbucket.MustNew(tokenbucket.Limit{Capacity: 10, RefillPerSec: 2}, tokenbucket.WithClock(clock.NewMock()))
	fmt.Println(bucket.TryAcquire(1))
	fmt.Println(bucket.TryAcquire(9))
	fmt.Println(bucket.TryAcquire(1))
	bucket.Pause(tokenbucket.Never)
	fmt.Println(bucket.TryAcquire(1))
	// Output:
	// 0s true
	// 0s true
	// 500ms false
	// 2562047h47m16.854775807s false
}

// An instant is a duration since an origin of the caller's choice: t.Sub(origin).
func Example_migratingAllowAtInstant() {
	limit := tokenbucket.Limit{Capacity: 10, RefillPerSec: 2}
	state, d := limit.Take(limit.Full(0), 3*time.Second, 8)
	fmt.Println(d.OK)
	fmt.Println(limit.Tokens(state, 4*time.Second))
	// Output:
	// true
	// 4
}

func Example_migratingWait() {
	bucket := tokenbucket.MustNew(tokenbucket.Limit{Capacity: 10, RefillPerSec: 2})
	ctx := context.Background()
	fmt.Println(bucket.Wait(ctx, 1))
	fmt.Println(bucket.Wait(ctx, 5))
	fmt.Println(bucket.Wait(ctx, 11))
	// Output:
	// <nil>
	// <nil>
	// tokenbucket: cost exceeds the capacity: cost 11, capacity 10: split the request or raise the capacity
}

// A reservation holds no tokens before its turn. So if one is cancelled, those behind it
// move up.
func Example_migratingReserve() {
	bucket := tokenbucket.MustNew(tokenbucket.Limit{Capacity: 10, RefillPerSec: 2},
		tokenbucket.WithTokens(0), tokenbucket.WithClock(clock.NewMock()))
	r, err := bucket.Reserve(1)
	fmt.Println(err == nil)
	fmt.Println(r.Delay())
	behind, _ := bucket.Reserve(5)
	fmt.Println(behind.Delay())
	fmt.Println(r.Cancel())
	fmt.Println(behind.Delay())
	// Output:
	// true
	// 500ms
	// 3s
	// true
	// 2.5s
}

func Example_migratingSetLimit() {
	bucket := tokenbucket.MustNew(tokenbucket.Limit{Capacity: 10, RefillPerSec: 2}, tokenbucket.WithClock(clock.NewMock()))
	fmt.Println(bucket.Limits()[0].RefillPerSec)
	fmt.Println(bucket.Capacity())
	fmt.Println(bucket.Tokens())
	fmt.Println(bucket.SetLimits(tokenbucket.Limit{Capacity: 10, RefillPerSec: 4}))
	fmt.Println(bucket.SetLimits(tokenbucket.Limit{Capacity: 5, RefillPerSec: 4}))
	fmt.Println(bucket.Tokens())
	// Output:
	// 2
	// 10
	// 10
	// <nil>
	// <nil>
	// 5
}
