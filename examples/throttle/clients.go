package main

import (
	"sync"

	"github.com/aa014e13/tokenbucket"
)

// clients holds a bucket for each client that downloads, or whose bucket is not full yet.
type clients struct {
	limit tokenbucket.Limit
	mu    sync.Mutex
	all   map[string]*entry
}

type entry struct {
	bucket    *tokenbucket.Bucket
	downloads int
}

func newClients(limit tokenbucket.Limit) *clients {
	return &clients{limit: limit, all: map[string]*entry{}}
}

// use returns the bucket of a client, and a function to call when the download has ended.
// The bucket is kept until all downloads have ended and it is full again: then it is equal
// to the bucket that a new client gets.
func (c *clients) use(key string) (bucket *tokenbucket.Bucket, release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sweepLocked()
	e := c.all[key]
	if e == nil {
		e = &entry{bucket: tokenbucket.MustNew(c.limit)} // newThrottle has checked it
		c.all[key] = e
	}
	e.downloads++
	return e.bucket, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		e.downloads--
	}
}

// sweepLocked looks at a few clients and removes those without downloads whose bucket is
// full. It looks at more clients than a call of use adds, so that the map does not grow
// without bound.
func (c *clients) sweepLocked() {
	looked := 0
	for key, e := range c.all {
		if e.downloads == 0 && e.bucket.Tokens() >= c.limit.Capacity {
			delete(c.all, key)
		}
		if looked++; looked == 4 {
			return
		}
	}
}
