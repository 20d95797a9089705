package tokenbucket

import (
	"sync/atomic"
	"time"

	"github.com/aa014e13/tokenbucket/internal/timeline"
)

// refusal is a recent refusal of an epoch, the first one by its word. Equal requests are
// refused by it without arithmetic, so a flood of them only reads.
//
// One goroutine at a time writes a refusal, and each refusal is by a later word than the one
// before. Others may load a mixture of two refusals meanwhile. But then the later word was the
// epoch's word before it was written. So if a word is loaded first, and still is the epoch's
// word at the end, the cost and the instant are those of that word.
type refusal struct {
	word    atomic.Uint64
	cost    atomic.Uint64 // whole tokens, at least 1; 0: nothing is written
	due     atomic.Int64  // the instant at which the cost is admitted
	writing atomic.Bool
}

// wait returns how long a cost has to wait at now, or 0 if the refusal is another one. The
// caller has to check that the word still is the epoch's word.
func (r *refusal) wait(word, cost uint64, now time.Duration) time.Duration {
	if cost == 0 || r.word.Load() != word || r.cost.Load() != cost {
		return 0
	}
	return max(0, time.Duration(r.due.Load())-now)
}

// note writes a refusal, unless one by the same word or a later one is written or being written.
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
