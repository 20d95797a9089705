package redisbucket

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// Errors to match with errors.Is, besides those of package tokenbucket. What is
// returned wraps them with the server, what failed, and what to do about it.
var (
	// ErrUnavailable says that the server could not be reached, did not answer in
	// time or could not decide; WithFallback decides instead. Where an answer was
	// lost the cost may have been taken, but only once: no request is sent again.
	ErrUnavailable = errors.New("redisbucket: unavailable")
	// ErrForeignKey says that the key holds what no bucket wrote.
	ErrForeignKey = errors.New("redisbucket: the key holds something else")
)

// errNoAnswer is what failed when a server did not answer within the timeout.
type errNoAnswer struct{ timeout time.Duration }

func (e errNoAnswer) Error() string { return fmt.Sprintf("no answer within %v", e.timeout) }
func (e errNoAnswer) Timeout() bool { return true }

// explain says what failed, and where.
func explain(r request, server string, err error, kind ErrorKind) error {
	switch text := err.Error(); {
	case kind == KindReply && (strings.Contains(text, "WRONGTYPE") || strings.Contains(text, "NOTBUCKET")):
		return fmt.Errorf("%w: %q at %s: %w: choose another prefix with WithPrefix, or delete the key", ErrForeignKey, r.key, server, err)
	default:
		return fmt.Errorf("%w: %v at %s: %w: %s", ErrUnavailable, r, server, err, advise(err, kind))
	}
}

// gaveUp says that a caller left before there was an answer.
func gaveUp(r request, server string, cause error) error {
	return fmt.Errorf("redisbucket: %v at %s: gave up on the answer: %w", r, server, cause)
}

// advise says what to do about a failure. Servers before Redis 7 put words of their
// own before the error of a command in a script.
func advise(err error, kind ErrorKind) string {
	switch text := err.Error(); kind {
	case KindClosed:
		return "close the client only after the last call"
	case KindSilent:
		return "check its load and the network, or raise WithTimeout"
	case KindBroken:
		return "check why connections to it are closed"
	case KindReply:
		return adviseReply(text)
	default:
		return "check that it runs and can be reached"
	}
}

// adviseReply says what to do about an error that the server answered.
func adviseReply(text string) string {
	switch {
	case isTooOld(text):
		return "the server is too old: use Redis 5 or Valkey 7.2, or newer"
	case strings.Contains(text, "READONLY"):
		return "it is a replica: connect to the master, by Sentinel or Cluster if they fail over"
	case strings.Contains(text, "LOADING"):
		return "it is reading its data: try again in a moment"
	case strings.Contains(text, "OOM "):
		return "give it more memory, or fewer keys"
	case isForbidden(text):
		return "check user and password; EVALSHA, EVAL, TIME, GET, SET and DEL are needed on the prefix, and in a cluster CLUSTER SLOTS"
	default:
		return "find out what the message means for this server"
	}
}

// isTooOld reports whether a server cannot run the script: it replicates scripts by their
// text, and so lets none write that has read the clock, or it has no scripts at all.
func isTooOld(text string) bool {
	return strings.Contains(text, "non deterministic commands") || strings.Contains(text, "unknown command 'eval")
}

// isForbidden reports whether a command was refused to the user within the script,
// in the words of Redis from 7.2 and Valkey on, or of older ones.
func isForbidden(text string) bool {
	return strings.Contains(text, "NOAUTH") || strings.Contains(text, "WRONGPASS") || strings.Contains(text, "NOPERM") || strings.Contains(text, "ACL failure") || strings.Contains(text, "can't run this command")
}

// reports calls the error handler.
type reports struct {
	handle func(error) // nil: none

	mu     sync.Mutex
	tooOld time.Time // when a server that is too old was last reported
}

// report calls the handler with an error. That a server is too old is reported once a minute,
// for as long as it is asked.
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
