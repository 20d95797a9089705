// Package rueidis runs redisbucket on github.com/redis/rueidis instead of go-redis:
//
//	client, err := rueidis.Open("127.0.0.1:6379")
//	buckets, err := redisbucket.NewWithClient(client, limit)
package rueidis

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"

	"github.com/redis/rueidis"

	"github.com/aa014e13/tokenbucket/redisbucket"
)

// Client is a redisbucket.Client. It may be used by any number of goroutines. rueidis sends
// the commands of all callers together by itself.
type Client struct {
	rueidis.Client
	addr string
}

// Open returns a client of one server, for the caller to Close.
func Open(addr string) (*Client, error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress:  []string{addr},
		DisableRetry: true, // nothing is sent twice
		DisableCache: true, // no cache of answers: those of scripts are never in it
	})
	if err != nil {
		return nil, err
	}
	return &Client{client, addr}, nil
}

// Run sends one run of the script.
func (c *Client) Run(ctx context.Context, run redisbucket.Run) (string, error) {
	command := c.B().Arbitrary(run.Command, run.Script, "1").Keys(run.Key).Args(run.Args...).Build()
	return c.Do(ctx, command).ToString()
}

// Server returns the server's address.
func (c *Client) Server(string) string { return c.addr }

// Kind returns what an error says about the server.
func (c *Client) Kind(err error) redisbucket.ErrorKind {
	var (
		dial *net.OpError
		slow net.Error
	)
	_, isReply := rueidis.IsRedisErr(err)
	switch {
	case isReply:
		return redisbucket.KindReply
	case errors.Is(err, rueidis.ErrClosing):
		return redisbucket.KindClosed
	case errors.As(err, &dial) && dial.Op == "dial":
		return redisbucket.KindUnreachable
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &slow) && slow.Timeout():
		return redisbucket.KindSilent
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return redisbucket.KindBroken
	default:
		return redisbucket.KindUnreachable
	}
}
