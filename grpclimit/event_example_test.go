package grpclimit_test

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/grpclimit"
	"github.com/aa014e13/tokenbucket/httplimit"
	"github.com/aa014e13/tokenbucket/keyed"
)

// callAs makes a call with an API key, and returns its error.
func callAs(client pb.TestServiceClient, key string) error {
	ctx := metadata.AppendToOutgoingContext(context.Background(), "api-key", key)
	_, err := client.UnaryCall(ctx, &pb.SimpleRequest{})
	return err
}

// The options of a server: the key is a hash of the API key in the metadata, and reflection
// is free.
func ExampleOption() {
	keys, err := keyed.New[string](tokenbucket.Limit{Capacity: 1, RefillPerSec: 1e-3})
	if err != nil {
		fmt.Println(err)
		return
	}
	opts := []grpclimit.Option{
		grpclimit.WithAPIKey("api-key"),
		grpclimit.WithCosts(tokenbucket.Costs{"/grpc.reflection.v1.ServerReflection/*": 0}),
	}
	limit, err := grpclimit.UnaryServerInterceptor(httplimit.PerKey(keys), opts...)
	if err != nil {
		fmt.Println(err)
		return
	}
	client, stop := startService(grpc.UnaryInterceptor(limit))
	defer stop()

	for _, key := range []string{"secret", "secret", "another"} {
		fmt.Println(status.Code(callAs(client, key)))
	}
	// Output:
	// OK
	// ResourceExhausted
	// OK
}

// The observer prints which calls the server refuses, and by which policy.
func ExampleEvent() {
	bucket := tokenbucket.MustNew(tokenbucket.Limit{Capacity: 1, RefillPerSec: 1e-3})
	limit, err := grpclimit.UnaryServerInterceptor(httplimit.Shared(bucket), grpclimit.WithPolicyNames("everybody"),
		grpclimit.WithObserver(func(e grpclimit.Event) {
			fmt.Printf("%s: refused %v by %q, wait %v\n", e.Method, e.Refused, e.Policy, e.Decision.Wait.Round(time.Minute))
		}))
	if err != nil {
		fmt.Println(err)
		return
	}
	client, stop := startService(grpc.UnaryInterceptor(limit))
	defer stop()

	for range 2 {
		_ = callAs(client, "")
	}
	// Output:
	// /grpc.testing.TestService/UnaryCall: refused false by "everybody", wait 0s
	// /grpc.testing.TestService/UnaryCall: refused true by "everybody", wait 17m0s
}

// The options of a client: calls have prices, and refused ones are sent again, unless the
// server demands a long pause.
func ExampleClientOption() {
	bucket := tokenbucket.MustNew(tokenbucket.Limit{Capacity: 100, RefillPerSec: 1e-3})
	wait, err := grpclimit.UnaryClientInterceptor(httplimit.AllHosts(bucket),
		grpclimit.WithClientCosts(tokenbucket.Costs{"/grpc.testing.TestService/*": 30}),
		grpclimit.WithRetries(2),
		grpclimit.WithLongestPause(time.Minute))
	if err != nil {
		fmt.Println(err)
		return
	}
	client, stop := startService(nil, grpc.WithUnaryInterceptor(wait))
	defer stop()

	for range 2 {
		fmt.Println(status.Code(callAs(client, "")))
	}
	fmt.Printf("%.0f tokens left\n", bucket.Tokens())
	// Output:
	// OK
	// OK
	// 40 tokens left
}

// Each attempt at a call has an event. The server refuses the first one for 20 ms.
func ExampleClientEvent() {
	limiter, _ := once(20 * time.Millisecond)
	limit, err := grpclimit.UnaryServerInterceptor(limiter)
	if err != nil {
		fmt.Println(err)
		return
	}
	bucket := tokenbucket.MustNew(tokenbucket.PerSecond(1000))
	wait, err := grpclimit.UnaryClientInterceptor(httplimit.AllHosts(bucket), grpclimit.WithRetries(1),
		grpclimit.WithClientObserver(func(e grpclimit.ClientEvent) {
			fmt.Printf("attempt %d: cost %v, %v, paused for %v\n", e.Attempt, e.Cost, status.Code(e.Err), e.Pause)
		}))
	if err != nil {
		fmt.Println(err)
		return
	}
	client, stop := startService(grpc.UnaryInterceptor(limit), grpc.WithUnaryInterceptor(wait))
	defer stop()

	if err := callAs(client, ""); err != nil {
		fmt.Println(err)
	}
	// Output:
	// attempt 1: cost 1, ResourceExhausted, paused for 20ms
	// attempt 2: cost 1, OK, paused for 0s
}
