package redisbucket

import (
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/aa014e13/tokenbucket"
)

//go:embed bucket.lua
var source string

var digest = func() string {
	sum := sha1.Sum([]byte(source))
	return hex.EncodeToString(sum[:])
}()

// mode is what a request does if the bucket has too few tokens.
type mode int

const (
	waits   mode = iota // it is refused unless the bucket has them within its patience
	charges             // it takes them anyway
	looks               // it takes nothing and writes nothing
)

// request is a request to the script.
type request struct {
	key      string // with the prefix
	price           // tokens to take; below 0 they are given back
	mode     mode
	patience time.Duration // the longest wait that is accepted, in whole microseconds
	further  float64       // more tokens to take, as many whole ones as the bucket has
}

func (r request) String() string {
	switch {
	case r.mode == looks:
		return "looking"
	case r.takes():
		return "taking"
	default:
		return "giving back"
	}
}

// named returns a run of the script by its digest, for a server that knows it.
func (r request) named(limits limitArgs) Run {
	return Run{"evalsha", digest, r.key, r.args(limits)}
}

// whole returns a run of the script with its text.
func (r request) whole(limits limitArgs) Run {
	return Run{"eval", source, r.key, r.args(limits)}
}

func (r request) args(limits limitArgs) []string {
	args := make([]string, 0, 4+len(limits.numbers))
	args = append(args, limits.policy, r.costs(limits.asked), r.ahead())
	args = append(args, limits.numbers...)
	if r.further > 0 {
		args = append(args, number(r.further))
	}
	return args
}

// costs returns one number, or one for each limit that is sent to the script.
func (r request) costs(asked []int) string {
	if r.each == nil {
		return number(r.cost)
	}
	words := make([]string, len(asked))
	for i, limit := range asked {
		words[i] = number(r.each[limit])
	}
	return strings.Join(words, " ")
}

// ahead returns the script's third argument: how far ahead of the refill the cost may be
// taken, in microseconds, or a mode below 0.
func (r request) ahead() string {
	switch r.mode {
	case charges:
		return "-1"
	case looks:
		return "-2"
	default:
		return strconv.FormatInt(r.patience.Microseconds(), 10)
	}
}

// limitArgs is the limits as the script's arguments. Limits that are tokenbucket.Unlimited()
// are not sent.
type limitArgs struct {
	limits  tokenbucket.Limits
	asked   []int    // the indices of the limits that are sent
	policy  string   // the beginning of a value, with a space
	numbers []string // capacity and refill of each
}

func newLimitArgs(limits tokenbucket.Limits) limitArgs {
	a := limitArgs{limits: limits, policy: "tb1"}
	for i, l := range limits {
		if l == unlimited {
			continue
		}
		a.asked = append(a.asked, i)
		capacity, refill := number(l.Capacity), number(l.RefillPerSec)
		a.policy += ":" + capacity + ":" + refill
		a.numbers = append(a.numbers, capacity, refill)
	}
	a.policy += " "
	return a
}

var unlimited = tokenbucket.Unlimited()

// admitAll returns the answer if all limits are unlimited, as the script would.
func (a limitArgs) admitAll(r request) answer {
	word := "0"
	if r.mode != looks && r.cost <= unlimited.Capacity {
		word = "1"
	}
	now := time.Now().UnixMicro()
	return answer(fmt.Sprintf("%s %d %d ", word, now/1e6, now%1e6))
}

// answer is the script's answer. It begins with 1 if the request was admitted, otherwise
// with 0. After 1 there is a + and the number of further tokens, if any were taken. Then come
// the server's clock in seconds and microseconds, and the value before, if the bucket was not
// full.
type answer string

func (a answer) admitted() bool { return strings.HasPrefix(string(a), "1") }

// further returns the tokens that were taken besides the price.
func (a answer) further() float64 {
	word, _, _ := strings.Cut(string(a), " ")
	_, tokens, found := strings.Cut(word, "+")
	if !found {
		return 0
	}
	further, _ := strconv.ParseFloat(tokens, 64)
	return further
}

// number writes all digits of a number. Stored values begin with the limits in this form. If
// the form changed, the script would take them for other limits and convert the values.
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
func (a answer) states(limits limitArgs, r request) (now time.Duration, states []tokenbucket.State, err error) {
	now, asked, err := a.read()
	if err != nil || len(asked) != 0 && len(asked) != len(limits.asked) {
		return 0, nil, fmt.Errorf("%w: %q: unexpected answer %q: choose another prefix with WithPrefix, or delete the key", ErrForeignKey, r.key, a)
	}
	states = make([]tokenbucket.State, len(limits.limits))
	limits.limits.Fill(states, now)
	for i, s := range asked {
		states[limits.asked[i]] = s
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

// roundUp rounds a wait up to whole microseconds, the unit of the server's clock.
func roundUp(wait time.Duration) time.Duration {
	if wait > math.MaxInt64-time.Microsecond {
		return tokenbucket.Never
	}
	return (wait + time.Microsecond - 1).Truncate(time.Microsecond)
}
