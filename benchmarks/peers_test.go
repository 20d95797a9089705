package main

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/didip/tollbooth/v7"
	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/juju/ratelimit"
	"github.com/sethvargo/go-limiter"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/stretchr/testify/require"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	ulule "github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/store/memory"
	uber "go.uber.org/ratelimit"
	"golang.org/x/time/rate"
	tailscale "tailscale.com/tstime/rate"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/keyed"
)

// single is a peer that limits all requests together.
type single struct {
	name       string
	admitsOnly bool // it cannot refuse
	open       func(testing.TB, tokenbucket.Limit) (admit func() bool)
}

// perKey is a peer that limits the requests of each key.
type perKey struct {
	name string
	open func(testing.TB, tokenbucket.Limit) (admit func(key string) bool)
}

var singles = []single{
	{name: "x-time-rate", open: openRate},
	{name: ours, open: openBucket},
	{name: ours + "-2-limits", open: openTwo},
	{name: ours + "-Take", open: openTake},
	{name: ours + "-2-limits-Take", open: openTwoTake},
	{name: "juju", open: openJuju},
	{name: "tailscale", open: openTailscale},
	{name: "failsafe", open: openFailsafe},
	{name: "uber", admitsOnly: true, open: openUber},
}

var perKeys = []perKey{
	{"idiom", openIdiom},
	{ours, openKeyed},
	{"go-limiter", openGoLimiter},
	{"throttled", openThrottled},
	{"ulule", openUlule},
	{"tollbooth", openTollbooth},
}

// oneKey turns a peer that has a limiter for each key into a single limiter.
func (p perKey) oneKey() single {
	return single{name: p.name, open: func(tb testing.TB, l tokenbucket.Limit) func() bool {
		admit := p.open(tb, l)
		return func() bool { return admit("client") }
	}}
}

func openRate(_ testing.TB, l tokenbucket.Limit) func() bool {
	limiter := rate.NewLimiter(rate.Limit(l.RefillPerSec), int(l.Capacity))
	return func() bool { return limiter.Allow() }
}

func openBucket(_ testing.TB, l tokenbucket.Limit) func() bool {
	bucket := tokenbucket.MustNew(l)
	return func() bool { _, ok := bucket.TryAcquire(1); return ok }
}

// openTake is like openBucket, but calls Take, which returns all that a header needs.
func openTake(_ testing.TB, l tokenbucket.Limit) func() bool {
	bucket := tokenbucket.MustNew(l)
	return func() bool { return bucket.Take(1).OK }
}

// openTwo is like openBucket, with a second limit, which is twice the first.
func openTwo(_ testing.TB, l tokenbucket.Limit) func() bool {
	bucket := tokenbucket.MustNew(l, twice(l))
	return func() bool { _, ok := bucket.TryAcquire(1); return ok }
}

func openTwoTake(_ testing.TB, l tokenbucket.Limit) func() bool {
	bucket := tokenbucket.MustNew(l, twice(l))
	return func() bool { return bucket.Take(1).OK }
}

func twice(l tokenbucket.Limit) tokenbucket.Option {
	return tokenbucket.WithLimit(tokenbucket.Limit{Capacity: 2 * l.Capacity, RefillPerSec: 2 * l.RefillPerSec})
}

func openJuju(_ testing.TB, l tokenbucket.Limit) func() bool {
	bucket := ratelimit.NewBucketWithRate(l.RefillPerSec, int64(l.Capacity))
	return func() bool { return bucket.TakeAvailable(1) == 1 }
}

func openTailscale(_ testing.TB, l tokenbucket.Limit) func() bool {
	limiter := tailscale.NewLimiter(tailscale.Limit(l.RefillPerSec), int(l.Capacity))
	return func() bool { return limiter.Allow() }
}

func openFailsafe(_ testing.TB, l tokenbucket.Limit) func() bool {
	limiter := ratelimiter.NewBursty[any](uint(l.Capacity), window(l))
	return func() bool { return limiter.TryAcquirePermit() }
}

// openUber never waits: a token is due each nanosecond, since this peer can only wait.
func openUber(testing.TB, tokenbucket.Limit) func() bool {
	limiter := uber.New(int(time.Second))
	return func() bool { limiter.Take(); return true }
}

// idiom is the code that people write most often: a map of limiters behind a mutex.
type idiom struct {
	limit    tokenbucket.Limit
	mu       sync.Mutex
	limiters map[string]*rate.Limiter
}

func (m *idiom) allow(key string) bool { return m.of(key).Allow() }

func (m *idiom) of(key string) *rate.Limiter {
	m.mu.Lock()
	l := m.limiters[key]
	if l == nil {
		l = rate.NewLimiter(rate.Limit(m.limit.RefillPerSec), int(m.limit.Capacity))
		m.limiters[key] = l
	}
	m.mu.Unlock()
	return l
}

func openIdiom(_ testing.TB, l tokenbucket.Limit) func(string) bool {
	m := &idiom{limit: l, limiters: map[string]*rate.Limiter{}}
	return m.allow
}

func openKeyed(tb testing.TB, l tokenbucket.Limit) func(string) bool {
	buckets := must[*keyed.Buckets[string]](tb)(keyed.New[string](l))
	return func(key string) bool { _, ok := buckets.TryAcquire(key, 1); return ok }
}

func openGoLimiter(tb testing.TB, l tokenbucket.Limit) func(string) bool {
	store := goLimiterStore(tb, l)
	return func(key string) bool {
		_, _, _, ok, err := store.Take(context.Background(), key)
		return ok && err == nil
	}
}

func goLimiterStore(tb testing.TB, l tokenbucket.Limit) limiter.Store {
	store := must[limiter.Store](tb)(memorystore.New(&memorystore.Config{Tokens: uint64(l.Capacity), Interval: window(l)}))
	tb.Cleanup(func() { require.NoError(tb, store.Close(context.Background())) })
	return store
}

func openThrottled(tb testing.TB, l tokenbucket.Limit) func(string) bool {
	store := must[throttled.GCRAStoreCtx](tb)(memstore.NewCtx(0))
	limiter := throttledLimiter(tb, l, store)
	return func(key string) bool {
		limited, _, err := limiter.RateLimitCtx(context.Background(), key, 1)
		return !limited && err == nil
	}
}

func throttledLimiter(tb testing.TB, l tokenbucket.Limit, store throttled.GCRAStoreCtx) *throttled.GCRARateLimiterCtx {
	quota := throttled.RateQuota{MaxRate: throttled.PerDuration(1, interval(l)), MaxBurst: int(l.Capacity) - 1}
	return must[*throttled.GCRARateLimiterCtx](tb)(throttled.NewGCRARateLimiterCtx(store, quota))
}

func openUlule(_ testing.TB, l tokenbucket.Limit) func(string) bool {
	limiter := ululeLimiter(l)
	return func(key string) bool {
		answer, err := limiter.Get(context.Background(), key)
		return err == nil && !answer.Reached
	}
}

func ululeLimiter(l tokenbucket.Limit) *ulule.Limiter {
	return ulule.New(memory.NewStore(), ulule.Rate{Period: window(l), Limit: int64(l.Capacity)})
}

func openTollbooth(_ testing.TB, l tokenbucket.Limit) func(string) bool {
	limiter := tollbooth.NewLimiter(l.RefillPerSec, nil).SetBurst(int(l.Capacity))
	return func(key string) bool { return !limiter.LimitReached(key) }
}

func TestPeersDecideAsTheirLoadSays(t *testing.T) {
	all := singles
	for _, p := range perKeys {
		all = append(all, p.oneKey())
	}
	for _, p := range all {
		for _, l := range []load{full, draining, refused} {
			if p.admitsOnly && !l.admitted {
				continue
			}
			admit := l.ready(p.open(t, l.limit))
			for range 1000 {
				require.Equal(t, l.admitted, admit(), "%s, %s", p.name, l.name)
			}
		}
	}
}
