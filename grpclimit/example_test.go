package grpclimit_test

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/grpclimit"
	"github.com/aa014e13/tokenbucket/httplimit"
	"github.com/aa014e13/tokenbucket/keyed"
)

func ExampleUnaryServerInterceptor() {
	// Each client has 2 tokens at most, and 6 more an hour. UnaryCall costs 2.
	clients, err := keyed.New[string](tokenbucket.Limit{Capacity: 2, RefillPerSec: 6.0 / 3600})
	if err != nil {
		fmt.Println(err)
		return
	}
	limit, err := grpclimit.UnaryServerInterceptor(httplimit.PerKey(clients), grpclimit.WithCosts(tokenbucket.Costs{
		"/grpc.testing.TestService/UnaryCall": 2,
		"/grpc.health.v1.Health/*":            0,
	}))
	if err != nil {
		fmt.Println(err)
		return
	}
	client, stop := startService(grpc.UnaryInterceptor(limit))
	defer stop()

	for range 2 {
		_, err = client.UnaryCall(context.Background(), &pb.SimpleRequest{})
		fmt.Println(status.Code(err))
	}
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			fmt.Println("retry in", info.GetRetryDelay().AsDuration().Round(time.Minute))
		}
	}
	// Output:
	// OK
	// ResourceExhausted
	// retry in 20m0s
}

func ExampleUnaryClientInterceptor() {
	bucket, err := tokenbucket.New(tokenbucket.PerMinute(1))
	if err != nil {
		fmt.Println(err)
		return
	}
	wait, err := grpclimit.UnaryClientInterceptor(httplimit.AllHosts(bucket), grpclimit.WithRetries(1))
	if err != nil {
		fmt.Println(err)
		return
	}
	client, stop := startService(nil, grpc.WithUnaryInterceptor(wait))
	defer stop()

	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for range 2 { // the second call would have to wait for a minute
		_, err := client.UnaryCall(ctx, &pb.SimpleRequest{})
		fmt.Println(status.Code(err) == codes.OK, status.Code(err) == codes.DeadlineExceeded)
	}
	// Output:
	// true false
	// false true
}

// startService starts a server on TCP and returns a client of it.
func startService(limit grpc.ServerOption, dial ...grpc.DialOption) (client pb.TestServiceClient, stop func()) {
	var opts []grpc.ServerOption
	if limit != nil {
		opts = append(opts, limit)
	}
	server := grpc.NewServer(opts...)
	pb.RegisterTestServiceServer(server, &service{})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go server.Serve(listener)
	conn, err := grpc.NewClient(listener.Addr().String(), append(dial, insecurely)...)
	if err != nil {
		panic(err)
	}
	return pb.NewTestServiceClient(conn), func() {
		conn.Close()
		server.Stop()
	}
}
