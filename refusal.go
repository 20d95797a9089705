package tokenbucket

import (
	"sync/atomic"
	"time"

	"github.com/aa014e13/tokenbucket/internal/timeline"
)

// refusal is a recent refusal of an epoch: a word of the epoch, a cost, and the instant
// from which the cost is admitted. Calls with the same word and cost are refused without
// arithmetic, so a flood of equal requests only reads memory. It is written at the second
// refusal with the same word, so that a single refusal stays cheap.
//
// One goroutine at a time writes a refusal, and each refusal has a later word than the one
// before. Another goroutine may load a mixture of two refusals while one is written. But a
// refusal is written only when the epoch already has its word. So a reader first loads the
// word, then cost and instant, and then checks that the epoch still has this word: if so, cost
// and instant belong to it.
type refusal struct {
	seen atomic.Uint64 // the word of the latest refusal that was computed; at first, the epoch's first word
	next atomic.Uint64 // the refusal's word plus 1; 0: there is none yet; epochOver: one is being written
	cost atomic.Uint64 // whole tokens, at least 1
	due  atomic.Int64  // the instant at which the cost is admitted
}

// wait returns how long a cost has to wait at now. The argument present holds the epoch's
// word. wait returns 0 if the refusal is for another word or cost, or if the epoch has a
// later word by now.
func (r *refusal) wait(present *atomic.Uint64, word, cost uint64, now time.Duration) time.Duration {
	if r.next.Load() != word+1 || r.cost.Load() != cost {
		return 0
	}
	due := time.Duration(r.due.Load())
	if present.Load() != word {
		return 0
	}
	return max(0, due-now)
}

// note writes a refusal when the same word is refused for the second time. It does not if a
// refusal with this word or a later one is already written, if another goroutine is writing
// a refusal, or if the wait never ends.
func (r *refusal) note(word, cost uint64, now, wait time.Duration) {
	due, next := timeline.Later(now, wait), r.next.Load()
	switch {
	case r.seen.Load() != word:
		r.seen.Store(word)
	case due < Never && next <= word && r.next.CompareAndSwap(next, epochOver):
		r.due.Store(int64(due))
		r.cost.Store(cost)
		r.next.Store(word + 1)
	}
}
