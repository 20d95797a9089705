package redisbucket

import "context"

// Client sends runs of the script, each described by a Run, to a server. New makes one
// from a go-redis client; NewWithClient takes any other. It may be used by any number
// of goroutines.
//
// A Client sends each run at most once: after the first byte was sent, it must not send
// the run again, except to follow a cluster's MOVED and ASK.
type Client interface {
	// Run sends one run and returns the server's answer, a string. It returns by the
	// deadline of its context.
	Run(ctx context.Context, run Run) (string, error)
	// Server returns the address of the server that has a key, as far as the client knows
	// it. It sends nothing.
	Server(key string) string
	// Kind returns what an error of these methods says about the server.
	Kind(err error) ErrorKind
}

// Batcher is a Client for a single server that can send several runs in one round trip.
// Runs that come while others are under way are then sent together.
type Batcher interface {
	Client
	// RunAll is like Run, for several runs. It returns one answer for each run, in the same
	// order. If it returns fewer or more answers, none of them is used, since it is not known
	// which run each belongs to: every request that was sent fails with ErrUnavailable, as
	// if its answer had been lost.
	RunAll(ctx context.Context, runs []Run) []Answer
}

// Prober is a Client that can open a new connection, to find out whether the server is
// dead or only the old connections are.
type Prober interface {
	Client
	// Probe is like Run, but on a new connection, which it closes afterwards.
	Probe(ctx context.Context, run Run) (string, error)
}

// Run is one run of the script: the words "Command Script 1 Key Args...".
type Run struct {
	Command string   // evalsha or eval
	Script  string   // the script's digest, or its text
	Key     string   // the only key
	Args    []string // must not be changed
}

// Answer is the result of a [Run], which is one execution of the script: the server's
// answer, or an error.
type Answer struct {
	Text string
	Err  error
}

// ErrorKind is what an error says about the server.
type ErrorKind int

// The kinds of errors. After KindSilent and KindUnreachable, requests to that server fail
// at once for a time; see WithBreak.
const (
	KindUnreachable ErrorKind = iota // no connection could be made; nothing was sent
	KindSilent                       // no answer came in time
	KindBroken                       // an existing connection broke, or the answer was cut
	KindReply                        // the server answered with an error
	KindClosed                       // the client has been closed
)
