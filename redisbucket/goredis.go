package redisbucket

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// goRedis is a Client by go-redis, for a cluster or any other redis.UniversalClient.
type goRedis struct {
	client redis.UniversalClient
}

// goRedisSingle is a goRedis for a single server, or for a master found by Sentinel. Its
// commands end with their contexts.
type goRedisSingle struct{ goRedis }

// newGoRedis returns a Client, and the go-redis client that it uses: for a single server
// without ContextTimeoutEnabled that is a copy.
func newGoRedis(client redis.UniversalClient, timeout time.Duration) (Client, redis.UniversalClient) {
	single, ok := client.(*redis.Client)
	if !ok {
		return goRedis{client}, client
	}
	prompt := promptly(single, timeout)
	return goRedisSingle{goRedis{prompt}}, prompt
}

// promptly returns a client whose commands end with their contexts: the same client, or
// a copy that shares its connections. go-redis copies no hooks.
func promptly(client *redis.Client, timeout time.Duration) *redis.Client {
	if client.Options().ContextTimeoutEnabled {
		return client
	}
	prompt := client.WithTimeout(timeout)
	prompt.Options().ContextTimeoutEnabled = true // the copy's own options; connecting ends with the context, too
	return prompt
}

// lingers reports whether commands may outlast their contexts: with go-redis' defaults, a
// read takes seconds and ignores the context.
func (g goRedis) lingers() bool {
	switch client := g.client.(type) {
	case *redis.Client:
		return !client.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		return !client.Options().ContextTimeoutEnabled
	}
	return true
}

// once is a command that is sent at most once. By default, go-redis sends a command up to
// three times more when the connection breaks, although the server may have executed it and
// only the answer was lost. The script would then take the tokens twice.
type once struct{ *redis.Cmd }

// NoRetry returns true.
func (once) NoRetry() bool { return true }

func newOnce(ctx context.Context, run Run) once {
	args := make([]any, 0, 4+len(run.Args))
	args = append(args, run.Command, run.Script, 1, run.Key)
	for _, arg := range run.Args {
		args = append(args, arg)
	}
	cmd := once{redis.NewCmd(ctx, args...)}
	cmd.SetFirstKeyPos(3)
	return cmd
}

// errNotText says that a server answered something other than text.
var errNotText = errors.New("the answer is not the script's")

// text returns the answer if it is complete. An answer that was cut is empty and has an
// error. A complete answer is valid even if the command also has an error: go-redis may set
// the error of a later answer of the pipeline.
func (o once) text() (string, error) {
	text, _ := o.Val().(string)
	switch {
	case text != "":
		return text, nil
	case o.Err() != nil:
		return "", o.Err()
	default:
		return "", errNotText
	}
}

// Run sends one run.
func (g goRedis) Run(ctx context.Context, run Run) (string, error) {
	cmd := newOnce(ctx, run)
	_ = g.client.Process(ctx, cmd) // cmd has the same error
	return cmd.text()
}

// RunAll sends several runs in a pipeline.
func (g goRedisSingle) RunAll(ctx context.Context, runs []Run) []Answer {
	pipe := g.client.Pipeline()
	cmds := make([]once, len(runs))
	for i, run := range runs {
		cmds[i] = newOnce(ctx, run)
		_ = pipe.Process(ctx, cmds[i])
	}
	_, _ = pipe.Exec(ctx) // the commands have their errors
	answers := make([]Answer, len(runs))
	for i, cmd := range cmds {
		answers[i].Text, answers[i].Err = cmd.text()
	}
	return answers
}

// node returns the client of the server that has a key, nil if it is not known.
func (g goRedis) node(key string) *redis.Client {
	switch client := g.client.(type) {
	case *redis.Client:
		return client
	case *redis.ClusterClient:
		// The context has ended, so MasterForKey uses what it knows and sends nothing.
		done, cancel := context.WithCancel(context.Background())
		cancel()
		if master, err := client.MasterForKey(done, key); err == nil {
			return master
		}
	}
	return nil
}

// Server returns the address of the server that has a key.
func (g goRedis) Server(key string) string {
	if node := g.node(key); node != nil {
		if addr := node.Options().Addr; addr != "FailoverClient" { // go-redis' placeholder with Sentinel
			return addr
		}
		return "the master that Sentinel names"
	}
	if cluster, ok := g.client.(*redis.ClusterClient); ok {
		return strings.Join(cluster.Options().Addrs, " or ")
	}
	return "the client's server"
}

// Probe sends a run on a new connection.
func (g goRedis) Probe(ctx context.Context, run Run) (string, error) {
	node := g.node(run.Key)
	if node == nil {
		return "", errors.ErrUnsupported
	}
	opts := *node.Options()
	opts.ContextTimeoutEnabled = true
	opts.PoolSize, opts.MinIdleConns, opts.MaxIdleConns, opts.MaxActiveConns = 1, 0, 1, 1
	opts.PipelinePoolSize = -1                  // no pool
	opts.MaxRetries, opts.DialerRetries = -1, 1 // no retries; one attempt to dial
	opts.Limiter = nil
	opts.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	fresh := redis.NewClient(&opts)
	defer fresh.Close()
	return goRedis{fresh}.Run(ctx, run)
}

// Kind returns what an error says about the server.
func (goRedis) Kind(err error) ErrorKind {
	var (
		reply redis.Error
		dial  *net.OpError
		slow  net.Error
	)
	switch {
	case errors.Is(err, redis.ErrClosed):
		return KindClosed
	case errors.As(err, &reply):
		return KindReply
	case errors.As(err, &dial) && dial.Op == "dial":
		return KindUnreachable
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, redis.ErrPoolTimeout), errors.As(err, &slow) && slow.Timeout():
		return KindSilent
	case isBreak(err):
		return KindBroken
	default:
		return KindUnreachable
	}
}

// isBreak reports whether an error says that an existing connection broke.
func isBreak(err error) bool {
	for _, broken := range []error{io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE, syscall.ECONNABORTED, errNotText} {
		if errors.Is(err, broken) {
			return true
		}
	}
	return false
}
