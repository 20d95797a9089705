package redisbucket

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/aa014e13/tokenbucket"
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

// explain tells what failed, and where.
func explain(r request, server string, err error) error {
	switch text := err.Error(); {
	case strings.Contains(text, "WRONGTYPE"), strings.Contains(text, "NOTBUCKET"):
		return fmt.Errorf("%w: %q at %s: %w: choose another prefix with WithPrefix, or delete the key", ErrForeignKey, r.key, server, err)
	default:
		return fmt.Errorf("%w: %v at %s: %w: %s", ErrUnavailable, r, server, err, advise(err))
	}
}

// gaveUp tells that a caller left before there was an answer.
func gaveUp(r request, server string, cause error) error {
	return fmt.Errorf("redisbucket: %v at %s: gave up on the answer: %w", r, server, cause)
}

// advise says what to do about a failure. Servers before Redis 7 put words of their
// own before the error of a command in a script.
func advise(err error) string {
	text := err.Error()
	var timeout interface{ Timeout() bool }
	switch {
	case errors.Is(err, redis.ErrClosed):
		return "close the client only after the last call"
	case strings.Contains(text, "READONLY"):
		return "it is a replica: connect to the master, by Sentinel or Cluster if they fail over"
	case strings.Contains(text, "LOADING"):
		return "it is reading its data: try again in a moment"
	case strings.Contains(text, "OOM "):
		return "give it more memory, or fewer keys"
	case redis.IsAuthError(err), redis.IsPermissionError(err), isForbidden(text):
		return "check user and password; EVALSHA, EVAL, TIME, GET, SET and DEL are needed on the prefix, and in a cluster CLUSTER SLOTS"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "check its load and the network, or raise WithTimeout"
	case isReply(err):
		return "mend what it complains about"
	default:
		return "check that it runs and can be reached"
	}
}

// isForbidden reports whether a command was refused to the user within the script,
// in the words of Redis from 7.2 and Valkey on, or of older ones.
func isForbidden(text string) bool {
	return strings.Contains(text, "NOPERM") || strings.Contains(text, "ACL failure") || strings.Contains(text, "can't run this command")
}

// checkAmount returns ErrInvalidCost unless tokens is finite and at least 0.
func checkAmount(tokens float64) error {
	if tokens >= 0 && !math.IsInf(tokens, 1) {
		return nil
	}
	return fmt.Errorf("%w: %v: pass a finite number of tokens, 0 or more", tokenbucket.ErrInvalidCost, tokens)
}

// checkCost returns what a bucket returns for a cost that can never be met.
func checkCost(cost, capacity float64) error {
	switch {
	case cost >= 0 && cost <= capacity:
		return nil
	case cost > capacity:
		return fmt.Errorf("%w: cost %v, capacity %v: split the request or raise the capacity", tokenbucket.ErrCostExceedsCapacity, cost, capacity)
	default:
		return fmt.Errorf("%w: %v: pass a number of tokens, 0 or more", tokenbucket.ErrInvalidCost, cost)
	}
}
