package redisbucket

import "context"

// Client carries runs of the script to a server: New makes one of a go-redis client, and
// NewWithClient takes any other. It may be used by any number of goroutines.
//
// A Client sends each run at most once: after its first byte, nothing is sent again,
// whatever happens. Of its own accord it may only follow a cluster's MOVED and ASK.
type Client interface {
	// Run sends one run and returns the server's answer, a string. It ends at the
	// deadline of its context at the latest.
	Run(ctx context.Context, run Run) (string, error)
	// Server returns the address of the server that has a key, as far as it is known
	// without asking anybody.
	Server(key string) string
	// Kind says what an error of these methods means.
	Kind(err error) ErrorKind
}

// Batcher is a Client for a single server that can send several runs in one round trip.
// Runs that come while others are under way are then sent together.
type Batcher interface {
	Client
	// RunAll is Run for several runs. The answers are in the same order.
	RunAll(ctx context.Context, runs []Run) []Answer
}

// Prober is a Client that can tell a dead connection from a dead server.
type Prober interface {
	Client
	// Probe is Run on a new connection, which is closed afterwards.
	Probe(ctx context.Context, run Run) (string, error)
}

// Run is one run of the script: the words "Command Script 1 Key Args...".
type Run struct {
	Command string   // evalsha or eval
	Script  string   // the script's digest, or its text
	Key     string   // the only one
	Args    []string // never changed
}

// Answer is what came of a run.
type Answer struct {
	Text string
	Err  error
}

// ErrorKind is what an error says about the server.
type ErrorKind int

// The kinds of errors. Those that say that a server does not answer break the circuit to
// it: KindSilent and KindUnreachable.
const (
	KindUnreachable ErrorKind = iota // no connection could be made; nothing was sent
	KindSilent                       // no answer came in time
	KindBroken                       // an existing connection broke, or the answer was cut
	KindReply                        // the server answered with an error
	KindClosed                       // the client has been closed
)
