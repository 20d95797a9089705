package simtest

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// timeout and pause are the arguments of WithTimeout and WithBreak in every process.
const (
	timeout = 500 * time.Millisecond
	pause   = 100 * time.Millisecond
)

// world holds the data that the parts of one run share.
type world struct {
	seed   uint64
	bug    Bug
	origin time.Time

	mu          sync.Mutex // guards what follows, connections and the server
	weather     weather
	server      *server
	connections []*conn
	runs        []*run
	losses      []time.Time // when the server lost data
}

// Bug is a deliberate fault, which the checks must find.
type Bug string

// The bugs.
const (
	NoBug       Bug = ""
	Replay      Bug = "replay"       // a client sends a run again when its answer was lost
	GiveTwice   Bug = "give-twice"   // tokens are given back twice, such as the rest of a lease
	ClientClock Bug = "client-clock" // the script gets its time from the client
)

func init() { redis.SetLogger(quiet{}) }

// quiet is a logger for go-redis that writes nothing.
type quiet struct{}

// Printf writes nothing.
func (quiet) Printf(context.Context, string, ...any) {}

func newWorld(seed uint64, bug Bug) *world {
	w := &world{seed: seed, bug: bug, origin: time.Now()}
	w.server = newServer(w)
	return w
}

// random returns a source of random numbers. Each combination of words has its own.
func (w *world) random(words ...uint64) *rand.Rand {
	mixed := w.seed
	for _, word := range words {
		mixed = rand.NewPCG(mixed, word).Uint64()
	}
	return rand.New(rand.NewPCG(w.seed, mixed))
}

// between returns a duration from a range.
func between(r *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(r.Int64N(int64(most-least)+1))
}
