package tokenbucket_test

import (
	"testing"
	"time"
)

func BenchmarkLimits(b *testing.B) {
	for _, limits := range []Limits{{roomy}, {roomy, another[roomy]}} {
		states := make([]State, len(limits))
		limits.Fill(states, 0)
		var now time.Duration
		name := []string{"", "one", "two"}[len(limits)]
		b.Run("TryAcquire/"+name, func(b *testing.B) {
			for b.Loop() {
				now += 100
				limits.TryAcquire(states, now, 1)
			}
		})
		b.Run("Take/"+name, func(b *testing.B) {
			for b.Loop() {
				now += 100
				limits.Take(states, now, 1)
			}
		})
	}
}
