package redisbucket

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// Errors to match with errors.Is, besides those of package tokenbucket. Errors wrap these,
// and say what failed and what to do about it. Most of them name the server, too.
var (
	// ErrUnavailable says that the server could not be reached, did not answer in
	// time or could not decide. A fallback then decides; see WithFallback. If an answer was
	// lost, the cost may have been taken, but only once: no request is sent again.
	ErrUnavailable = errors.New("redisbucket: unavailable")
	// ErrForeignKey says that the key has a value that is not a bucket's.
	ErrForeignKey = errors.New("redisbucket: the key holds something else")
)

// errNoAnswer says that a server did not answer within the timeout.
type errNoAnswer struct{ timeout time.Duration }

func (e errNoAnswer) Error() string { return fmt.Sprintf("no answer within %v", e.timeout) }
func (e errNoAnswer) Timeout() bool { return true }

// errMiscounted says that RunAll of a Batcher returned another number of answers than runs.
type errMiscounted struct{ answers, runs int }

func (e errMiscounted) Error() string {
	return fmt.Sprintf("the client's RunAll returned %d answers for %d runs", e.answers, e.runs)
}

// explain returns an error that says what failed, and at which server.
func explain(r request, server string, err error, kind ErrorKind) error {
	switch text := err.Error(); {
	case kind == KindReply && (strings.Contains(text, "WRONGTYPE") || strings.Contains(text, "NOTBUCKET")):
		return fmt.Errorf("%w: %q at %s: %w: choose another prefix with WithPrefix, or delete the key", ErrForeignKey, r.key, server, err)
	default:
		return fmt.Errorf("%w: %v at %s: %w: %s", ErrUnavailable, r, server, err, advise(err, kind))
	}
}

// gaveUp returns the error of a caller that left before there was an answer.
func gaveUp(r request, server string, cause error) error {
	return fmt.Errorf("redisbucket: %v at %s: gave up on the answer: %w", r, server, cause)
}

// advise returns what to do about a failure.
func advise(err error, kind ErrorKind) string {
	if _, ok := err.(errMiscounted); ok {
		return "make RunAll return one answer for each run, in the same order"
	}
	switch text := err.Error(); kind {
	case KindClosed:
		return "close the client only after the last call"
	case KindSilent:
		return "check the server's load and the network, or raise WithTimeout"
	case KindBroken:
		return "check why connections to the server are closed"
	case KindReply:
		return adviseReply(text)
	default:
		return "check that the server runs and can be reached"
	}
}

// adviseReply returns what to do about an error that the server answered. It looks for words
// anywhere in the text: servers before Redis 7 put their own words before the error of a
// command in a script.
func adviseReply(text string) string {
	switch {
	case isTooOld(text):
		return "the server is too old: use Redis 5 or Valkey 7.2, or newer"
	case strings.Contains(text, "READONLY"):
		return "the server is a replica: connect to the master; if replicas take over, use a client for Sentinel or Cluster"
	case strings.Contains(text, "LOADING"):
		return "the server is reading its data: try again in a moment"
	case strings.Contains(text, "OOM "):
		return "give the server more memory, or use fewer keys"
	case isForbidden(text):
		return "check user and password; EVALSHA, EVAL, TIME, GET, SET and DEL are needed on the prefix, and in a cluster CLUSTER SLOTS"
	default:
		return "look the message up in the server's documentation"
	}
}

// isTooOld reports whether a server cannot run the script. Some old servers replicate
// scripts by their text, so a script that has read the clock must not write. Others have
// no scripts at all.
func isTooOld(text string) bool {
	return strings.Contains(text, "non deterministic commands") || strings.Contains(text, "unknown command 'eval")
}

// isForbidden reports whether the server refused a user or a command, in the words of any
// version of Redis and Valkey.
func isForbidden(text string) bool {
	return strings.Contains(text, "NOAUTH") || strings.Contains(text, "WRONGPASS") || strings.Contains(text, "NOPERM") || strings.Contains(text, "ACL failure") || strings.Contains(text, "can't run this command")
}

// reports calls the error handler.
type reports struct {
	handle func(error) // nil: none

	mu     sync.Mutex
	tooOld time.Time // when a server that is too old was last reported
}

// report calls the handler with an error. It reports a server that is too old at most once
// a minute.
func (r *reports) report(err error) {
	if r.handle == nil || isTooOld(err.Error()) && !r.isDue() {
		return
	}
	r.handle(err)
}

func (r *reports) isDue() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if !r.tooOld.IsZero() && now.Sub(r.tooOld) < time.Minute {
		return false
	}
	r.tooOld = now
	return true
}
