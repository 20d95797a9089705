package keyed_test

import (
	"fmt"
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

// A key whose bucket has had time to fill is forgotten, which nobody can notice.
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
