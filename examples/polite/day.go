package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/aa014e13/tokenbucket"
)

// The API allows fewer than 30 requests a minute and fewer than 300 an hour. Within returns
// a limit that holds in any window, wherever the window starts. A smaller burst allows a
// higher rate.
var (
	perMinute = tokenbucket.Within(29, time.Minute, 14)
	perHour   = tokenbucket.Within(299, time.Hour, 28)
)

// liveThroughDays simulates three days of a client that always has something to fetch.
func liveThroughDays(out io.Writer) {
	fmt.Fprintln(out, "a day of a client that always has something to fetch, on a virtual clock:")
	for _, day := range []struct {
		name   string
		limits []tokenbucket.Limit
	}{
		{"both limits", []tokenbucket.Limit{perMinute, perHour}},
		{"no hourly limit", []tokenbucket.Limit{perMinute}},
		{"no limit per minute", []tokenbucket.Limit{perHour}},
	} {
		served, banned := liveThroughDay(day.limits...)
		if banned > 0 {
			fmt.Fprintf(out, "%-20s banned permanently at %v, after %d requests\n", day.name, banned.Round(time.Second), served)
			continue
		}
		fmt.Fprintf(out, "%-20s no ban: %d requests, %.1f%% of 299 an hour\n", day.name, served, float64(served)/(24*299)*100)
	}
}

// liveThroughDay returns how many requests the server answered in a day, and when it
// banned the client: 0 if it did not.
func liveThroughDay(limits ...tokenbucket.Limit) (served int, banned time.Duration) {
	now := &virtualClock{}
	opts := []tokenbucket.Option{tokenbucket.WithClock(now)}
	for _, l := range limits[1:] {
		opts = append(opts, tokenbucket.WithLimit(l))
	}
	bucket := tokenbucket.MustNew(limits[0], opts...)
	var server strictServer
	for now.elapsed < 24*time.Hour {
		if err := bucket.Wait(context.Background(), 1); err != nil {
			panic(err) // the context never ends and the cost is 1
		}
		if !server.answers(now.elapsed) {
			return served, now.elapsed
		}
		served++
	}
	return served, 0
}

// strictServer bans on the 30th request within any minute or the 300th within any hour.
type strictServer struct{ requests []time.Duration }

func (s *strictServer) answers(now time.Duration) bool {
	s.requests = append(s.requests, now)
	return s.within(now-time.Minute) < 30 && s.within(now-time.Hour) < 300
}

func (s *strictServer) within(since time.Duration) (n int) {
	for i := len(s.requests) - 1; i >= 0 && s.requests[i] >= since; i-- {
		n++
	}
	return n
}

// virtualClock is a clock for one goroutine. A sleep returns at once and advances the clock.
type virtualClock struct{ elapsed time.Duration }

func (c *virtualClock) Now() time.Time                  { return time.Time{}.Add(c.elapsed) }
func (c *virtualClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

func (c *virtualClock) After(d time.Duration) <-chan time.Time {
	c.elapsed += d
	rings := make(chan time.Time, 1)
	rings <- c.Now()
	return rings
}
