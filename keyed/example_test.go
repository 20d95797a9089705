package keyed_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/keyed"
)

func Example() {
	clients, err := keyed.New[string](tokenbucket.Limit{Capacity: 2, RefillPerSec: 1}, keyed.WithClock(clock.NewMock()))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(clients.TryAcquire("alice", 2))
	fmt.Println(clients.TryAcquire("alice", 1))
	fmt.Println(clients.TryAcquire("bob", 1))
	// Output:
	// 0s true
	// 1s false
	// 0s true
}

// Each class of customers has its own limits, and its own buckets.
func Example_plans() {
	mock := clock.NewMock()
	plans := map[string]*keyed.Buckets[string]{}
	for name, limit := range map[string]tokenbucket.Limit{
		"free": tokenbucket.PerMinute(2),
		"paid": tokenbucket.PerMinute(600),
	} {
		buckets, err := keyed.New[string](limit, keyed.WithClock(mock), keyed.WithMaxKeys(1_000_000))
		if err != nil {
			fmt.Println(err)
			return
		}
		plans[name] = buckets
	}
	fmt.Println(plans["free"].Take("alice", 1).Remaining(), plans["paid"].Take("bob", 1).Remaining())
	// Output: 1 599
}

// A key whose bucket has had time to fill is forgotten. That changes no answer.
func ExampleBuckets_Len() {
	mock := clock.NewMock()
	clients, err := keyed.New[string](tokenbucket.Limit{Capacity: 2, RefillPerSec: 1}, keyed.WithClock(mock), keyed.WithMaxKeys(100))
	if err != nil {
		fmt.Println(err)
		return
	}
	clients.TryAcquire("alice", 2)
	fmt.Println(clients.Len())
	mock.Add(2 * time.Second)
	clients.TryAcquire("bob", 0)
	fmt.Println(clients.Len(), clients.Tokens("alice"))
	// Output:
	// 1
	// 0 2
}

// A crawler sends each host at most one request a second. Wait sleeps until there is a
// token for the host. Here the deadline would come first, so it returns at once.
func ExampleBuckets_Wait() {
	hosts, err := keyed.New[string](tokenbucket.Limit{Capacity: 1, RefillPerSec: 0.01}, keyed.WithMaxWaiters(10))
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	fmt.Println(hosts.Wait(ctx, "example.com", 1))
	fmt.Println(hosts.Wait(ctx, "example.org", 1))
	var deadline *tokenbucket.DeadlineError
	if err := hosts.Wait(ctx, "example.com", 1); errors.As(err, &deadline) {
		fmt.Println("wait", deadline.Wait.Round(time.Second))
	}
	// Output:
	// <nil>
	// <nil>
	// wait 1m40s
}

// A request failed before it did any work, so its cost is given back.
func ExampleBuckets_Refund() {
	clients, err := keyed.New[string](tokenbucket.Limit{Capacity: 10, RefillPerSec: 1}, keyed.WithClock(clock.NewMock()))
	if err != nil {
		fmt.Println(err)
		return
	}
	clients.TryAcquire("alice", 4)
	if err := clients.Refund("alice", 3); err != nil {
		fmt.Println(err)
	}
	fmt.Println(clients.Tokens("alice"))
	// Output: 9
}

// A host answered 429 with Retry-After: 30. The other hosts are not affected.
func ExampleBuckets_Pause() {
	hosts, err := keyed.New[string](tokenbucket.Limit{Capacity: 5, RefillPerSec: 1}, keyed.WithClock(clock.NewMock()))
	if err != nil {
		fmt.Println(err)
		return
	}
	hosts.Pause("example.com", 30*time.Second)
	fmt.Println(hosts.TryAcquire("example.com", 1))
	fmt.Println(hosts.TryAcquire("example.org", 1))
	// Output:
	// 31s false
	// 0s true
}

// The support team gives a customer a full bucket.
func ExampleBuckets_Forget() {
	clients, err := keyed.New[string](tokenbucket.Limit{Capacity: 2, RefillPerSec: 1}, keyed.WithClock(clock.NewMock()))
	if err != nil {
		fmt.Println(err)
		return
	}
	clients.TryAcquire("alice", 2)
	clients.Forget("alice")
	fmt.Println(clients.TryAcquire("alice", 2))
	// Output: 0s true
}

// Each client gets 10 requests a second and 100 a minute on average. A refusal by one
// limit takes nothing from the other.
func ExampleWithLimit() {
	clients, err := keyed.New[string](tokenbucket.PerSecond(10),
		keyed.WithLimit(tokenbucket.PerMinute(100)), keyed.WithClock(clock.NewMock()))
	if err != nil {
		fmt.Println(err)
		return
	}
	d := clients.Take("alice", 8)
	fmt.Println(d.OK, d.Tokens, d.Limit.Capacity)
	d = clients.Take("alice", 8)
	fmt.Println(d.OK, d.Wait, d.Limit.Capacity)
	// Output:
	// true 2 10
	// false 600ms 10
}

// These are the two clients with the fewest tokens left.
func ExampleBuckets_All() {
	clients, err := keyed.New[string](tokenbucket.Limit{Capacity: 10, RefillPerSec: 1}, keyed.WithClock(clock.NewMock()))
	if err != nil {
		fmt.Println(err)
		return
	}
	for name, cost := range map[string]float64{"alice": 3, "bob": 9, "carol": 6, "dave": 0} {
		clients.TryAcquire(name, cost)
	}
	limited := maps.Collect(clients.All())
	now, limits := clients.Latest(), tokenbucket.Limits(clients.Limits())
	names := slices.SortedFunc(maps.Keys(limited), func(a, b string) int {
		return cmp.Compare(limits.Tokens(limited[a], now), limits.Tokens(limited[b], now))
	})
	for _, name := range names[:2] {
		fmt.Println(name, limits.Tokens(limited[name], now))
	}
	// Output:
	// bob 1
	// carol 4
}
