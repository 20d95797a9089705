package redisbucket

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/aa014e13/tokenbucket"
)

//go:embed bucket.lua
var source string

var digest = func() string {
	sum := sha1.Sum([]byte(source))
	return hex.EncodeToString(sum[:])
}()

// request is one run of the script.
type request struct {
	key      string        // as Redis has it
	cost     float64       // tokens; below 0 they are given back
	patience time.Duration // the longest wait that is accepted, whole microseconds count
	further  float64       // tokens to take besides, as many whole ones as are there
}

func (r request) String() string {
	if r.cost < 0 {
		return "giving back"
	}
	return "taking"
}

// answer is what the script says: 1 or 0 for admitted or not, with the further tokens
// that were taken, its clock in seconds and microseconds, and the value before, if
// the bucket was not full.
type answer string

func (a answer) admitted() bool { return strings.HasPrefix(string(a), "1") }

// further returns the tokens that were taken besides what was asked for.
func (a answer) further() float64 {
	word, _, _ := strings.Cut(string(a), " ")
	_, tokens, found := strings.Cut(word, "+")
	if !found {
		return 0
	}
	further, _ := strconv.ParseFloat(tokens, 64)
	return further
}

// once is a command that is sent at most once: go-redis by default sends it up to
// three times more when the connection breaks, though the server may have carried
// it out and only the answer was lost. A script that spends would spend twice.
type once struct{ *redis.Cmd }

// NoRetry returns true.
func (once) NoRetry() bool { return true }

// command returns a run of the script, known to the server or not: by name, evalsha
// and its digest or eval and its text.
func command(ctx context.Context, name, script string, r request, limits []any) once {
	args := make([]any, 0, 8+len(limits))
	args = append(args, name, script, 1, r.key, limits[0], number(r.cost), strconv.FormatInt(r.patience.Microseconds(), 10))
	args = append(args, limits[1:]...)
	if r.further > 0 {
		args = append(args, number(r.further))
	}
	cmd := once{redis.NewCmd(ctx, args...)}
	cmd.SetFirstKeyPos(3)
	return cmd
}

// arguments tells the script the limits.
func arguments(limits tokenbucket.Limits) []any {
	policy, args := "tb1", []any{""}
	for _, l := range limits {
		capacity, refill := number(l.Capacity), number(l.RefillPerSec)
		policy += ":" + capacity + ":" + refill
		args = append(args, capacity, refill)
	}
	args[0] = policy + " "
	return args
}

// number writes all digits of a number.
func number(x float64) string { return strconv.FormatFloat(x, 'g', 17, 64) }

// read returns the server's clock, since 1970, and the states before the decision:
// none for a bucket that was full.
func (a answer) read() (now time.Duration, states []tokenbucket.State, err error) {
	r := reader{rest: string(a)}
	r.next() // admitted
	now = r.instant()
	if r.rest == "" {
		return now, nil, r.err
	}
	r.next()    // limits
	r.instant() // of the latest write
	for r.rest != "" && r.err == nil {
		balance, anchor := r.float(), r.int()
		states = append(states, tokenbucket.State{Balance: balance, Anchor: time.Duration(anchor) * time.Microsecond})
	}
	return now, states, r.err
}

// states returns the server's clock and the states before the decision, those of a
// full bucket if there were none.
func (a answer) states(limits tokenbucket.Limits, r request) (now time.Duration, states []tokenbucket.State, err error) {
	now, states, err = a.read()
	switch {
	case err != nil, len(states) != 0 && len(states) != len(limits):
		return 0, nil, fmt.Errorf("%w: %q: unexpected answer %q: choose another prefix with WithPrefix, or delete the key", ErrForeignKey, r.key, a)
	case len(states) == 0:
		states = make([]tokenbucket.State, len(limits))
		limits.Fill(states, now)
	}
	return now, states, nil
}

// reader reads words, and keeps the first error.
type reader struct {
	rest string
	err  error
}

func (r *reader) next() (word string) {
	word, r.rest, _ = strings.Cut(r.rest, " ")
	return word
}

func (r *reader) float() float64 {
	x, err := strconv.ParseFloat(r.next(), 64)
	if r.err == nil {
		r.err = err
	}
	return x
}

func (r *reader) int() int64 {
	n, err := strconv.ParseInt(r.next(), 10, 64)
	if r.err == nil {
		r.err = err
	}
	return n
}

func (r *reader) instant() time.Duration {
	seconds, micros := r.int(), r.int()
	return time.Duration(seconds)*time.Second + time.Duration(micros)*time.Microsecond
}

// roundUp returns a wait in whole microseconds, as the server's clock counts.
func roundUp(wait time.Duration) time.Duration {
	if wait > math.MaxInt64-time.Microsecond {
		return tokenbucket.Never
	}
	return (wait + time.Microsecond - 1).Truncate(time.Microsecond)
}
