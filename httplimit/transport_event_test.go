package httplimit_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/httplimit"
)

// observer notes events without their requests.
type observer struct{ events []httplimit.TransportEvent }

func (o *observer) observe(e httplimit.TransportEvent) {
	e.Request = nil
	o.events = append(o.events, e)
}

func (o *observer) option() httplimit.TransportOption {
	return httplimit.WithTransportObserver(o.observe)
}

func TestTransportObserverSeesEveryAttempt(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		var o observer
		client, _ := s.politely(tokenbucket.Limit{Capacity: 2, RefillPerSec: 1}, o.option(),
			httplimit.WithTransportCosts(tokenbucket.Costs{"/": 2}), httplimit.WithRetries(2), httplimit.WithJitterSource(noJitter{}))
		s.will(429, "Retry-After", "5").will(429).will(200)
		s.get(client, exampleURL)
		s.get(client, exampleURL)
		require.Len(t, o.events, 4)
		const host, sec = "api.example.com", time.Second
		first, second, third, fourth := o.events[0], o.events[1], o.events[2], o.events[3]
		require.Equal(t, httplimit.TransportEvent{Host: host, Cost: 2, Attempt: 1, Pause: first.Pause, Reason: httplimit.PausedByRetryAfter, Status: 429}, first)
		require.GreaterOrEqual(t, first.Pause, 5*sec)
		require.Equal(t, httplimit.TransportEvent{Host: host, Cost: 2, Attempt: 2, Waited: first.Pause + 2*sec, Pause: second.Pause, Reason: httplimit.PausedByDefault, Status: 429}, second)
		require.GreaterOrEqual(t, second.Pause, 10*sec)
		require.Equal(t, httplimit.TransportEvent{Host: host, Cost: 2, Attempt: 3, Waited: second.Pause + 2*sec, Status: 200}, third)
		require.Equal(t, httplimit.TransportEvent{Host: host, Cost: 2, Attempt: 1, Waited: 2 * sec, Status: 200}, fourth)
	})
}

// noJitter gives two transports the same jitter.
type noJitter struct{}

func (noJitter) Uint64() uint64 { return 0 }

func TestTransportObserverSeesPauses(t *testing.T) {
	for _, row := range []struct {
		status int
		header []string
		pause  time.Duration
		reason httplimit.PauseReason
	}{
		{200, nil, 0, ""},
		{429, nil, 10 * time.Second, httplimit.PausedByDefault},
		{429, []string{"Retry-After", "7"}, 7 * time.Second, httplimit.PausedByRetryAfter},
		{429, []string{"Retry-After", "3600"}, 5 * time.Minute, httplimit.PausedByRetryAfter},
		{429, []string{"RateLimit", `"a";r=0;t=9`}, 9 * time.Second, httplimit.PausedByFields},
		{200, []string{"RateLimit", `"a";r=0;t=9`}, 9 * time.Second, httplimit.PausedByFields},
		{200, []string{"RateLimit", `"a";r=0`}, 0, ""},
		{200, []string{"RateLimit", `"a";r=1;t=9`}, 0, ""},
		{503, nil, 0, ""},
	} {
		onStage(t, func(t *testing.T, s *stage) {
			var o observer
			client, _ := s.politely(oneASecond, o.option(), httplimit.WithRateLimitFields())
			s.will(row.status, row.header...)
			s.get(client, exampleURL)
			require.Equal(t, []httplimit.TransportEvent{{Host: "api.example.com", Cost: 1, Attempt: 1, Pause: row.pause, Reason: row.reason, Status: row.status}}, o.events)
		})
	}
}

func TestTransportObserverSeesErrors(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		var o observer
		broken := errors.New("connection reset")
		client, bucket := s.politely(oneASecond, o.option(), httplimit.WithBase(roundTripFunc(func(*http.Request) (*http.Response, error) { return nil, broken })))
		_, err := client.Get(exampleURL)
		require.ErrorIs(t, err, broken)
		require.NoError(t, bucket.Charge(5))
		client.Timeout = time.Second
		_, err = client.Get(exampleURL)
		var deadline *tokenbucket.DeadlineError
		require.ErrorAs(t, err, &deadline)
		require.Equal(t, []httplimit.TransportEvent{
			{Host: "api.example.com", Cost: 1, Attempt: 1, Err: broken},
			{Host: "api.example.com", Cost: 1, Attempt: 1, Err: deadline},
		}, o.events)
	})
}

// The retry fails because of its deadline, but the caller gets the answer.
func TestTransportObserverSeesTheRetryThatIsNotSent(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		var o observer
		client, _ := s.politely(oneASecond, o.option(), httplimit.WithRetries(1))
		s.will(429, "Retry-After", "20")
		client.Timeout = 5 * time.Second
		status, _ := s.get(client, exampleURL)
		require.Equal(t, 429, status)
		require.Len(t, o.events, 2)
		require.Equal(t, 2, o.events[1].Attempt)
		require.ErrorIs(t, o.events[1].Err, context.DeadlineExceeded)
	})
}

func TestTransportObserverCountsTheTimeOfAHold(t *testing.T) {
	inMemory(t, 0, func(http.ResponseWriter, *http.Request) {}, func(t *testing.T, base *http.Transport) {
		var o observer
		bucket := tokenbucket.MustNew(oneASecond, tokenbucket.WithTokens(0))
		transport, err := httplimit.NewTransport(httplimit.AllHosts(bucket), o.option(),
			httplimit.WithBase(roundTripFunc(func(req *http.Request) (*http.Response, error) {
				bucket.Pause(3 * time.Second)
				return base.RoundTrip(req)
			})))
		require.NoError(t, err)
		req, err := http.NewRequest(http.MethodGet, exampleURL, nil)
		require.NoError(t, err)
		resp, err := transport.RoundTrip(req)
		require.NoError(t, err)
		resp.Body.Close()
		require.Equal(t, []httplimit.TransportEvent{{Host: "api.example.com", Cost: 1, Attempt: 1, Waited: 4 * time.Second, Status: 200}}, o.events)
	})
}

// As net/http does, a request that is cancelled in the queue returns the cause.
func TestTransportCancelledWithACause(t *testing.T) {
	enough := errors.New("enough")
	onStage(t, func(t *testing.T, s *stage) {
		client, bucket := s.politely(oneASecond)
		bucket.TryAcquire(1)
		ctx, cancel := context.WithCancelCause(context.Background())
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, exampleURL, nil)
		require.NoError(t, err)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, err := client.Transport.RoundTrip(req)
			assert.Equal(t, enough, err)
		}()
		synctest.Wait()
		cancel(enough)
		<-done
		_, err = client.Do(req)
		require.ErrorIs(t, err, enough, "it has ended before")
	})
	onStage(t, func(t *testing.T, s *stage) { // while a retry queues
		s.will(429, "Retry-After", "5")
		client, _ := s.politely(oneASecond, httplimit.WithRetries(1))
		ctx, cancel := context.WithCancelCause(context.Background())
		time.AfterFunc(time.Second, func() { cancel(enough) })
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, exampleURL, nil)
		require.NoError(t, err)
		_, err = client.Transport.RoundTrip(req)
		require.Equal(t, enough, err)
		require.True(t, s.bodies[0].closed)
	})
}
