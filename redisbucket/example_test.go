package redisbucket_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/httplimit"
	"github.com/aa014e13/tokenbucket/keyed"
	"github.com/aa014e13/tokenbucket/redisbucket"
)

var _ httplimit.Refunder = (*redisbucket.Buckets)(nil)

// exampleServer starts a Redis server for the examples. Its clock stands still.
func exampleServer() (addr string, stop func()) {
	m := miniredis.NewMiniRedis()
	if err := m.Start(); err != nil {
		panic(err)
	}
	m.SetTime(time.Unix(1_800_000_000, 0))
	return m.Addr(), m.Close
}

func Example() {
	addr, stop := exampleServer()
	defer stop()
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()

	// Each client of ours has 10 tokens at most, and one more every 2 s, however many
	// machines it talks to.
	buckets, err := redisbucket.New(client, tokenbucket.Limit{Capacity: 10, RefillPerSec: 0.5})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, cost := range []float64{5, 1, 5} {
		d, err := buckets.Take(context.Background(), "alice", cost)
		fmt.Println(d.OK, d.Remaining(), d.Wait, err)
	}
	// Output:
	// true 5 0s <nil>
	// true 4 0s <nil>
	// false 4 2s <nil>
}

// While Redis does not answer, each of three processes has a third of the limit.
func ExampleWithFallback() {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // no server
	defer client.Close()
	local, err := keyed.New[string](tokenbucket.Limit{Capacity: 2, RefillPerSec: 0.1})
	if err != nil {
		fmt.Println(err)
		return
	}
	buckets, err := redisbucket.New(client, tokenbucket.Limit{Capacity: 6, RefillPerSec: 0.3},
		redisbucket.WithTimeout(50*time.Millisecond), redisbucket.WithFallback(local))
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		d, err := buckets.Take(context.Background(), "alice", 1)
		fmt.Println(d.OK, d.Remaining(), err)
	}
	// Output:
	// true 1 <nil>
	// true 0 <nil>
	// false 0 <nil>
}

// sorry is a Fallback that admits nothing: the wait is always 5 s.
type sorry struct{}

func (sorry) Take(string, float64) tokenbucket.Decision {
	return tokenbucket.Decision{Wait: 5 * time.Second, LimitIndex: -1}
}

func (sorry) Wait(context.Context, string, float64) error { return errors.New("no Redis: try later") }

func (sorry) Refund(string, float64) error { return nil }

// Write your own Fallback if an unlimited request does more harm than a refused one.
func ExampleFallback() {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // no server
	defer client.Close()
	buckets, err := redisbucket.New(client, tokenbucket.Limit{Capacity: 6, RefillPerSec: 0.3},
		redisbucket.WithTimeout(50*time.Millisecond), redisbucket.WithFallback(sorry{}))
	if err != nil {
		fmt.Println(err)
		return
	}
	d, err := buckets.Take(context.Background(), "alice", 1)
	fmt.Println(d.OK, d.Wait, err)
	fmt.Println(buckets.Wait(context.Background(), "alice", 1))
	// Output:
	// false 5s <nil>
	// no Redis: try later
}

// exampleBuckets returns buckets on a new Redis server, and a function that closes all of
// it.
func exampleBuckets(limit tokenbucket.Limit) (buckets *redisbucket.Buckets, closeAll func()) {
	addr, stop := exampleServer()
	client := redis.NewClient(&redis.Options{Addr: addr})
	buckets, err := redisbucket.New(client, limit, redisbucket.WithTimeout(10*time.Second))
	if err != nil {
		panic(err)
	}
	return buckets, func() {
		_ = client.Close()
		stop()
	}
}

// Tokens for work that was not done are given back.
func ExampleBuckets_Refund() {
	buckets, closeAll := exampleBuckets(tokenbucket.Limit{Capacity: 10, RefillPerSec: 0.5})
	defer closeAll()
	ctx := context.Background()
	fmt.Println(buckets.TryAcquire(ctx, "alice", 5))
	fmt.Println(buckets.Refund(ctx, "alice", 5)) // the export failed
	d, err := buckets.Peek(ctx, "alice", 0)
	fmt.Println(d.Remaining(), err)
	// Output:
	// 0s true <nil>
	// <nil>
	// 10 <nil>
}

// Wait queues on the server, so that workers on all machines leave in the order in which
// they came. A wait that would outlast its deadline fails at once.
func ExampleBuckets_Wait() {
	buckets, closeAll := exampleBuckets(tokenbucket.Limit{Capacity: 1, RefillPerSec: 0.01})
	defer closeAll()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	fmt.Println(buckets.Wait(ctx, "example.com", 1))
	err := buckets.Wait(ctx, "example.com", 1)
	var late *tokenbucket.DeadlineError
	fmt.Println(errors.As(err, &late) && late.Wait > 99*time.Second)
	// Output:
	// <nil>
	// true
}

// Two kinds of buckets on one server need two prefixes.
func ExampleWithPrefix() {
	addr, stop := exampleServer()
	defer stop()
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	for _, prefix := range []string{"mail:", "export:"} {
		buckets, err := redisbucket.New(client, tokenbucket.Limit{Capacity: 10, RefillPerSec: 0.5}, redisbucket.WithPrefix(prefix))
		if err != nil {
			fmt.Println(err)
			return
		}
		d, err := buckets.Take(context.Background(), "alice", 5)
		fmt.Println(d.Remaining(), err)
	}
	keys, err := client.Keys(context.Background(), "*").Result()
	fmt.Println(keys, err)
	// Output:
	// 5 <nil>
	// 5 <nil>
	// [export:alice mail:alice] <nil>
}
