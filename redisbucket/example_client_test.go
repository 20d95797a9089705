package redisbucket_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/redisbucket"
)

// plain is a Client by a library that can send a command, here go-redis.
type plain struct{ *redis.Client }

func (p plain) Run(ctx context.Context, run redisbucket.Run) (string, error) {
	return p.Do(ctx, words(run)...).Text()
}

func words(run redisbucket.Run) []any {
	command := []any{run.Command, run.Script, 1, run.Key}
	for _, arg := range run.Args {
		command = append(command, arg)
	}
	return command
}

func (p plain) Server(string) string { return p.Options().Addr }

func (p plain) Kind(err error) redisbucket.ErrorKind {
	var reply redis.Error
	var network net.Error
	switch {
	case errors.Is(err, redis.ErrClosed):
		return redisbucket.KindClosed
	case errors.As(err, &reply):
		return redisbucket.KindReply
	case errors.As(err, &network) && network.Timeout():
		return redisbucket.KindSilent
	case errors.Is(err, io.EOF):
		return redisbucket.KindBroken
	default:
		return redisbucket.KindUnreachable
	}
}

// open returns a plain client of a server. It sends nothing twice, and ends with its contexts.
func open(addr string) plain {
	return plain{redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, ContextTimeoutEnabled: true})}
}

// startPlain starts a server and returns a client of it.
func startPlain() (client plain, stop func()) {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	client = open(server.Addr())
	return client, func() {
		_ = client.Close()
		server.Close()
	}
}

// These buckets use another client library than go-redis.
func ExampleClient() {
	client, stop := startPlain()
	defer stop()
	buckets, err := redisbucket.NewWithClient(client, tokenbucket.Limit{Capacity: 10, RefillPerSec: 0.01})
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		d, err := buckets.Take(context.Background(), "alice", 5)
		fmt.Println(d.OK, d.Remaining(), err)
	}
	// Output:
	// true 5 <nil>
	// true 0 <nil>
	// false 0 <nil>
}

// You can test your own Client with any script.
func ExampleRun() {
	client, stop := startPlain()
	defer stop()
	run := redisbucket.Run{Command: "eval", Script: "return KEYS[1] .. ' ' .. ARGV[2]", Key: "alice", Args: []string{"hello", "world"}}
	fmt.Println(client.Run(context.Background(), run))
	// Output: alice world <nil>
}

// After an error of KindSilent or KindUnreachable, no request is sent to the server for a
// moment.
func ExampleErrorKind() {
	client, stop := startPlain()
	ctx := context.Background()
	_, err := client.Run(ctx, redisbucket.Run{Command: "eval", Script: "return redis.error_reply('NO')", Key: "alice"})
	fmt.Println("error of the server:", client.Kind(err) == redisbucket.KindReply)
	stop()
	_, err = client.Run(ctx, redisbucket.Run{})
	fmt.Println("client closed:", client.Kind(err) == redisbucket.KindClosed)

	nobody := open("127.0.0.1:1")
	defer nobody.Close()
	_, err = nobody.Run(ctx, redisbucket.Run{})
	fmt.Println("no connection:", nobody.Kind(err) == redisbucket.KindUnreachable)
	// Output:
	// error of the server: true
	// client closed: true
	// no connection: true
}

// pipelined is a plain client that also sends several runs in one round trip.
type pipelined struct{ plain }

func (p pipelined) RunAll(ctx context.Context, runs []redisbucket.Run) []redisbucket.Answer {
	pipe := p.Pipeline()
	commands := make([]*redis.Cmd, len(runs))
	for i, run := range runs {
		commands[i] = pipe.Do(ctx, words(run)...)
	}
	_, _ = pipe.Exec(ctx) // the commands have their errors
	answers := make([]redisbucket.Answer, len(runs))
	for i, command := range commands {
		answers[i].Text, answers[i].Err = command.Text()
	}
	return answers
}

// Requests that come at the same time go to the server together.
func ExampleBatcher() {
	client, stop := startPlain()
	defer stop()
	var batcher redisbucket.Batcher = pipelined{client}
	buckets, err := redisbucket.NewWithClient(batcher, tokenbucket.Limit{Capacity: 10, RefillPerSec: 1e-3},
		redisbucket.WithTimeout(10*time.Second))
	if err != nil {
		fmt.Println(err)
		return
	}
	var admitted atomic.Int64
	var all sync.WaitGroup
	for range 30 {
		all.Go(func() {
			if _, ok, err := buckets.TryAcquire(context.Background(), "alice", 1); err != nil {
				fmt.Println(err)
			} else if ok {
				admitted.Add(1)
			}
		})
	}
	all.Wait()
	fmt.Println(admitted.Load(), "of 30 admitted")
	// Output: 10 of 30 admitted
}

// Each run has its own answer or error.
func ExampleAnswer() {
	client, stop := startPlain()
	defer stop()
	batcher := pipelined{client}
	for _, answer := range batcher.RunAll(context.Background(), []redisbucket.Run{
		{Command: "eval", Script: "return 'yes'", Key: "alice"},
		{Command: "evalsha", Script: "0000000000000000000000000000000000000000", Key: "alice"},
	}) {
		fmt.Printf("%q, failed: %v\n", answer.Text, answer.Err != nil)
	}
	// Output:
	// "yes", failed: false
	// "", failed: true
}

// probing is a plain client that can also try a new connection.
type probing struct{ plain }

func (p probing) Probe(ctx context.Context, run redisbucket.Run) (string, error) {
	fresh := open(p.Options().Addr)
	defer fresh.Close()
	return fresh.Run(ctx, run)
}

// The old connections do not answer any more, but the server does. Probe finds out.
func ExampleProber() {
	client, stop := startPlain()
	defer stop()
	var prober redisbucket.Prober = probing{client}
	run := redisbucket.Run{Command: "eval", Script: "return 'here'", Key: "alice"}
	_ = client.Close()
	_, err := prober.Run(context.Background(), run)
	fmt.Println("old connections fail:", err != nil)
	fmt.Println(prober.Probe(context.Background(), run))
	// Output:
	// old connections fail: true
	// here <nil>
}
