// Command grpcgateway runs a gRPC server with limits, and a client of it, in one process. It
// prints which calls are refused, and when they are admitted:
//
//	go run ./examples/grpcgateway
//
// Each client of the server has 3 tokens, and 2 more every second. A call costs 1, but
// Checkout costs 3; health checks and reflection are free. The client calls as fast as it
// can. Its interceptor sends refused calls again when the server says.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/grpclimit"
	"github.com/aa014e13/tokenbucket/httplimit"
	"github.com/aa014e13/tokenbucket/keyed"
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// costs are the prices of the server's methods. All other methods cost 1.
var costs = tokenbucket.Costs{
	"/shop.Shop/Checkout":                         3,
	"/grpc.health.v1.Health/*":                    0,
	"/grpc.reflection.v1.ServerReflection/*":      0,
	"/grpc.reflection.v1alpha.ServerReflection/*": 0,
}

func run(ctx context.Context, out io.Writer) error {
	server, err := newServer()
	if err != nil {
		return err
	}
	listener := bufconn.Listen(1 << 16)
	go func() { _ = server.Serve(listener) }() // it ends with Stop
	defer server.Stop()
	conn, err := connect(listener, out)
	if err != nil {
		return err
	}
	defer conn.Close()

	start := time.Now()
	for _, method := range []string{"List", "List", "Checkout", "List", "Checkout"} {
		if err := conn.Invoke(ctx, "/shop.Shop/"+method, &emptypb.Empty{}, &emptypb.Empty{}); err != nil {
			return err
		}
		fmt.Fprintf(out, "%-8s answered after %.1f s\n", method, time.Since(start).Seconds())
	}
	for range 100 {
		if _, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{}); err != nil {
			return err
		}
	}
	fmt.Fprintln(out, "100 health checks were free")
	return nil
}

// newServer returns a server whose clients have a bucket each.
func newServer() (*grpc.Server, error) {
	clients, err := keyed.New[string](tokenbucket.Limit{Capacity: 3, RefillPerSec: 2})
	if err != nil {
		return nil, err
	}
	unary, err := grpclimit.UnaryServerInterceptor(httplimit.PerKey(clients), grpclimit.WithCosts(costs))
	if err != nil {
		return nil, err
	}
	stream, err := grpclimit.StreamServerInterceptor(httplimit.PerKey(clients), grpclimit.WithCosts(costs))
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(unary), grpc.StreamInterceptor(stream))
	server.RegisterService(&shop, nil)
	healthpb.RegisterHealthServer(server, health.NewServer())
	reflection.Register(server)
	return server, nil
}

// connect returns a connection that sends a refused call again when the server says, up to
// twice. Its own limit is far above the server's, so that the server refuses.
func connect(listener *bufconn.Listener, out io.Writer) (*grpc.ClientConn, error) {
	targets, err := keyed.New[string](tokenbucket.PerSecond(1000))
	if err != nil {
		return nil, err
	}
	limit, err := grpclimit.UnaryClientInterceptor(targets, grpclimit.WithRetries(2),
		grpclimit.WithClientCosts(tokenbucket.Costs{"/grpc.health.v1.Health/*": 0}),
		grpclimit.WithClientObserver(func(e grpclimit.ClientEvent) {
			if e.Pause > 0 {
				fmt.Fprintf(out, "%-8s refused: retry in %.1f s\n", e.Method[strings.LastIndexByte(e.Method, '/')+1:], e.Pause.Seconds())
			}
		}))
	if err != nil {
		return nil, err
	}
	return grpc.NewClient("passthrough:///shop",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
		grpc.WithUnaryInterceptor(limit))
}

// shop is a service whose methods do nothing. It is written by hand, so that the example
// needs no generated code.
var shop = grpc.ServiceDesc{
	ServiceName: "shop.Shop",
	HandlerType: (*any)(nil),
	Methods:     []grpc.MethodDesc{{MethodName: "List", Handler: serve("List")}, {MethodName: "Checkout", Handler: serve("Checkout")}},
}

func serve(method string) grpc.MethodHandler {
	return func(service any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
		request := &emptypb.Empty{}
		if err := decode(request); err != nil {
			return nil, err
		}
		info := &grpc.UnaryServerInfo{Server: service, FullMethod: "/shop.Shop/" + method}
		return interceptor(ctx, request, info, func(context.Context, any) (any, error) { return &emptypb.Empty{}, nil })
	}
}
