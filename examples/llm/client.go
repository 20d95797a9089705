package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/aa014e13/tokenbucket"
)

// client sends requests to the API. Its methods may be called by any number of goroutines.
type client struct {
	http   http.Client
	url    string
	clock  tokenbucket.Clock
	bucket *tokenbucket.Bucket // requests and tokens

	lowering sync.Mutex // so that two workers do not charge the same difference

	mu                       sync.Mutex
	requests, tokens, pauses int
	waited                   time.Duration
	start                    time.Time
}

// share is how much of the API's capacity the bucket has. The rest covers requests that
// take different times to arrive: the API may see them closer together.
const share = 0.9

func newClient(base http.RoundTripper, url string, limits tokenbucket.Limits, clock tokenbucket.Clock) (*client, error) {
	requests, tokens := limits[0], limits[1]
	requests.Capacity *= share
	tokens.Capacity *= share
	bucket, err := tokenbucket.New(requests, tokenbucket.WithLimit(tokens), tokenbucket.WithClock(clock))
	if err != nil {
		return nil, err
	}
	return &client{http: http.Client{Transport: base}, url: url, clock: clock, bucket: bucket, start: clock.Now()}, nil
}

// complete sends one request and repeats it after refusals. It may use up to prompt plus
// longest tokens. It returns an error if ctx ends, if the request fails, or if the API
// answers with a status other than 200 and 429.
func (c *client) complete(ctx context.Context, prompt, longest int) error {
	estimate := float64(prompt + longest)
	for {
		began := c.clock.Now()
		if err := c.bucket.WaitEach(ctx, 1, estimate); err != nil {
			return err
		}
		c.count(func() { c.waited += c.clock.Since(began) })
		answer, err := c.send(ctx, request{prompt, longest})
		if err != nil {
			return join(err, c.bucket.RefundEach(0, estimate))
		}
		switch answer.status {
		case http.StatusOK:
			if err := c.settle(estimate, float64(answer.Usage.TotalTokens)); err != nil {
				return err
			}
			c.lower(answer.header)
			c.count(func() { c.requests++; c.tokens += answer.Usage.TotalTokens })
			return nil
		case http.StatusTooManyRequests: // the API took nothing
			if err := c.bucket.RefundEach(1, estimate); err != nil {
				return err
			}
			c.lower(answer.header)
			c.hold(answer.header)
		default:
			return fmt.Errorf("the API answered with status %d: see its documentation", answer.status)
		}
	}
}

func join(err, refund error) error {
	if refund != nil {
		return fmt.Errorf("%w; and giving the tokens back: %w", err, refund)
	}
	return err
}

// answer is an answer of the API.
type answer struct {
	status int
	header http.Header
	usage
}

func (c *client) send(ctx context.Context, r request) (*answer, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	a := &answer{status: res.StatusCode, header: res.Header}
	if a.status != http.StatusOK {
		return a, nil
	}
	return a, json.NewDecoder(res.Body).Decode(&a.usage)
}

// settle replaces the estimate by the tokens that were used.
func (c *client) settle(estimate, used float64) error {
	if used > estimate {
		return c.bucket.ChargeEach(0, used-estimate)
	}
	return c.bucket.RefundEach(0, estimate-used)
}

// lower takes tokens from the bucket if it has more than the API reports: other clients
// may use the same API key. It never raises a level, since some servers round up.
func (c *client) lower(header http.Header) {
	requests, tokens := remaining(header, "requests"), remaining(header, "tokens")
	c.lowering.Lock()
	defer c.lowering.Unlock()
	_, states := c.bucket.State()
	now := c.bucket.Latest()
	limits := c.bucket.Limits()
	excess := func(i int, reported float64) float64 { return max(0, limits[i].Tokens(states[i], now)-reported) }
	if r, t := excess(0, requests), excess(1, tokens); r > 0 || t > 0 {
		_ = c.bucket.ChargeEach(r, t) // finite, and one for each limit
	}
}

// hold makes all workers wait as long as the API orders.
func (c *client) hold(header http.Header) {
	wait, err := tokenbucket.ParseRetryAfter(header.Get("Retry-After"), c.clock.Now())
	if err != nil {
		wait = max(reset(header, "requests"), reset(header, "tokens"), time.Second)
	}
	c.bucket.Pause(wait)
	c.count(func() { c.pauses++ })
}

func (c *client) count(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

// report returns one line: the tokens used, and the time waited.
func (c *client) report() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	elapsed := c.clock.Since(c.start)
	return fmt.Sprintf("%v: %d requests, %d tokens (%.0f a minute), %d refusals obeyed, workers waited %v in all",
		elapsed.Round(time.Second), c.requests, c.tokens, float64(c.tokens)/elapsed.Minutes(), c.pauses, c.waited.Round(time.Second))
}
