package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/aa014e13/tokenbucket"
)

// request is the body of a request: the tokens of the prompt, and the most tokens that
// the answer may have.
type request struct {
	Prompt    int `json:"prompt"`
	MaxTokens int `json:"max_tokens"`
}

// usage is the body of an answer.
type usage struct {
	Usage struct {
		TotalTokens int `json:"total_tokens"`
	} `json:"usage"`
}

// api simulates the API of a language model. It reports its limits in the fields that
// OpenAI uses.
type api struct {
	limits tokenbucket.Limits // requests, tokens
	clock  tokenbucket.Clock
	origin time.Time

	mu        sync.Mutex
	states    []tokenbucket.State
	random    *rand.Rand
	refused   int           // because a limit was used up
	onPurpose int           // to check whether clients obey
	ordered   time.Duration // how long refusals on purpose made clients wait; waits at the same time count once
	opens     time.Duration // the end of the latest of these waits
}

func newAPI(limits tokenbucket.Limits, clock tokenbucket.Clock, seed uint64) *api {
	a := &api{limits: limits, clock: clock, origin: clock.Now(), random: rand.New(rand.NewPCG(seed, 1))}
	a.states = make([]tokenbucket.State, len(limits))
	limits.Fill(a.states, 0)
	return a
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var asked request
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	estimate := asked.Prompt + asked.MaxTokens
	retryAfter := a.admit(float64(estimate))
	if retryAfter > 0 {
		seconds, _ := tokenbucket.RetryAfter(retryAfter)
		w.Header().Set("Retry-After", strconv.FormatInt(seconds, 10))
		a.setFields(w.Header())
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	used, takes := a.work(asked)
	select {
	case <-a.clock.After(takes):
	case <-r.Context().Done(): // the client has gone: only the prompt was used
		used = asked.Prompt
	}
	a.settle(float64(estimate), float64(used))
	a.setFields(w.Header())
	fmt.Fprintf(w, `{"usage":{"total_tokens":%d}}`, used)
}

// admit returns 0, or how long the client has to wait.
func (a *api) admit(estimate float64) (retryAfter time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock.Since(a.origin)
	if a.random.IntN(40) == 0 {
		a.onPurpose++
		retryAfter = time.Duration(2+a.random.IntN(5)) * time.Second
		a.ordered += max(0, now+retryAfter-max(now, a.opens))
		a.opens = max(a.opens, now+retryAfter)
		return retryAfter
	}
	wait, ok := a.limits.TryAcquireEach(a.states, now, 1, estimate)
	if !ok {
		a.refused++
	}
	return wait
}

// work returns how many tokens an answer uses, and how long it takes. Now and then an
// answer is longer than the request allows.
func (a *api) work(asked request) (used int, takes time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	used = asked.Prompt + a.random.IntN(asked.MaxTokens*21/20)
	return used, time.Duration(1+a.random.IntN(4)) * time.Second
}

func (a *api) settle(estimate, used float64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock.Since(a.origin)
	if used > estimate {
		_ = a.limits.ChargeEach(a.states, now, 0, used-estimate)
	} else {
		_ = a.limits.RefundEach(a.states, now, 0, estimate-used)
	}
}

func (a *api) setFields(h http.Header) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock.Since(a.origin)
	for i, unit := range []string{"requests", "tokens"} {
		limit, state := a.limits[i:i+1], a.states[i:i+1]
		left := max(0, limit.Tokens(state, now))
		h.Set("x-ratelimit-remaining-"+unit, strconv.FormatInt(int64(left), 10))
		h.Set("x-ratelimit-reset-"+unit, limit.UntilFull(state, now).Round(time.Millisecond).String())
	}
}
