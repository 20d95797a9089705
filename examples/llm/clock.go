package main

import "time"

// fastClock runs faster than the real clock.
type fastClock struct {
	start time.Time
	speed float64
}

func newFastClock(speed float64) fastClock { return fastClock{time.Now(), speed} }

func (c fastClock) Now() time.Time {
	return c.start.Add(time.Duration(float64(time.Since(c.start)) * c.speed))
}

func (c fastClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

func (c fastClock) After(d time.Duration) <-chan time.Time {
	return time.After(time.Duration(float64(d)/c.speed) + 1) // rounded up, so that no timer rings too early
}
