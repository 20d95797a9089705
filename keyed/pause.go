package keyed

import (
	"context"
	"time"
)

// WaitPause waits until the key's bucket is no longer paused, as Bucket.WaitPause does.
func (b *Buckets[K]) WaitPause(ctx context.Context, key K) (waited time.Duration, err error) {
	var v visit[K]
	b.enter(&v, key)
	if v.attended == nil { // a paused key is attended
		b.leave(&v)
		return 0, nil
	}
	defer b.unattend(&v)
	return v.attended.bucket.WaitPause(ctx)
}
