package httplimit_test

import (
	"context"
	"fmt"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/httplimit"
)

// A mail server limits messages by their senders. A message costs one token for each of its
// recipients.
func ExampleGate() {
	bucket := tokenbucket.MustNew(tokenbucket.Limit{Capacity: 100, RefillPerSec: 1}, tokenbucket.WithClock(clock.NewMock()))
	gate, err := httplimit.NewGate(httplimit.Shared(bucket), httplimit.WithPolicyNames("recipients"))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, recipients := range []float64{80, 50} {
		key := gate.OwnKey("ann@example.com", nil)
		answer := gate.Ask(context.Background(), key, recipients)
		if answer.GoesOn() {
			fmt.Println("250 OK")
			continue
		}
		e := answer.Event()
		fmt.Printf("450 %s: try again in %v\n", e.Policy, e.Decision.Wait)
	}
	// Output:
	// 250 OK
	// 450 recipients: try again in 30s
}

// An Answer has the values of RateLimit, for another protocol.
func ExampleAnswer() {
	limiter, _ := twoEach()
	gate, err := httplimit.NewGate(limiter)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("limits:", gate.Limits())
	for range 3 {
		answer := gate.Ask(context.Background(), "ann", 1)
		fmt.Printf("%v %s of %s\n", answer.GoesOn(), answer.AppendRateLimit(nil), answer.RateLimitPolicy())
	}
	// Output:
	// limits: [{2 0.5}]
	// true "default";r=1;t=2 of "default";q=2;w=4
	// true "default";r=0;t=2 of "default";q=2;w=4
	// false "default";r=0;t=2 of "default";q=2;w=4
}

// plans has a limiter for each plan of accounts. Any type with these two methods is a
// Refunder.
type plans struct{ free, paid httplimit.Refunder }

func (p plans) of(account string) httplimit.Refunder {
	if account == "ann" { // a customer
		return p.paid
	}
	return p.free
}

func (p plans) Take(ctx context.Context, account string, cost float64) (tokenbucket.Decision, error) {
	return p.of(account).Take(ctx, account, cost)
}

func (p plans) Refund(ctx context.Context, account string, cost float64) error {
	return p.of(account).Refund(ctx, account, cost)
}

// Each account has the limit of its plan, and all accounts share another limit. If the
// shared limit refuses a request, Both gives the tokens back to the account.
func ExampleRefunder() {
	free, accounts := twoEach()
	paid := httplimit.Shared(tokenbucket.MustNew(tokenbucket.PerSecond(1000)))
	everybody := tokenbucket.MustNew(tokenbucket.Limit{Capacity: 3, RefillPerSec: 0.1}, tokenbucket.WithClock(clock.NewMock()))
	limiter := httplimit.Both(plans{free, paid}, httplimit.Shared(everybody))
	for _, account := range []string{"bob", "ann", "ann", "bob"} {
		d, err := limiter.Take(context.Background(), account, 1)
		fmt.Println(account, d.OK, d.Wait.Round(time.Second), err)
	}
	fmt.Println("bob has", accounts.Tokens("bob"))
	// Output:
	// bob true 0s <nil>
	// ann true 0s <nil>
	// ann true 0s <nil>
	// bob false 10s <nil>
	// bob has 1
}
