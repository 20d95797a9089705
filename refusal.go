package tokenbucket

import (
	"sync/atomic"
	"time"

	"github.com/aa014e13/tokenbucket/internal/timeline"
)

// refusal is a recent refusal of an epoch: a word of the epoch, a cost, and the instant
// from which the cost is admitted. Calls with the same word and cost are refused without
// arithmetic, so a flood of equal requests only reads memory.
//
// One goroutine at a time writes a refusal, and each refusal has a later word than the one
// before. Another goroutine may load a mixture of two refusals while one is written. But the
// later word is the epoch's word before it is written here. So a reader first loads the word,
// then cost and instant, and then checks that the epoch still has this word: if so, cost and
// instant belong to it.
type refusal struct {
	word    atomic.Uint64
	cost    atomic.Uint64 // whole tokens, at least 1; 0 before the first refusal
	due     atomic.Int64  // the instant at which the cost is admitted
	writing atomic.Bool
}

// wait returns how long a cost has to wait at now, or 0 if the refusal has another word or
// cost. Afterwards the caller must check that the epoch still has the word.
func (r *refusal) wait(word, cost uint64, now time.Duration) time.Duration {
	if cost == 0 || r.word.Load() != word || r.cost.Load() != cost {
		return 0
	}
	return max(0, time.Duration(r.due.Load())-now)
}

// note writes a refusal, unless there is one with the same or a later word, or another goroutine
// is writing one.
func (r *refusal) note(word, cost uint64, now, wait time.Duration) {
	due := timeline.Later(now, wait)
	if due == Never || r.isNoted(word) || !r.writing.CompareAndSwap(false, true) {
		return
	}
	if !r.isNoted(word) {
		r.due.Store(int64(due))
		r.cost.Store(cost)
		r.word.Store(word)
	}
	r.writing.Store(false)
}

func (r *refusal) isNoted(word uint64) bool {
	return r.word.Load() >= word && r.cost.Load() > 0
}
