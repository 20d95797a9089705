package grpclimit

import (
	"hash/maphash"
	"sync/atomic"

	"google.golang.org/grpc/metadata"

	"github.com/aa014e13/tokenbucket/httplimit"
)

// trailers is a cache of the trailers of admitted calls, by the hash of ratelimit: most calls
// have the values of a recent one. Each entry is immutable, so readers need no lock, and calls
// can share it: gRPC's SetTrailer copies its argument, as metadata.Join does. Streams get copies,
// because interceptors often wrap a grpc.ServerStream.
type trailers [256]atomic.Pointer[trailer]

var trailerSeed = maphash.MakeSeed()

// trailer is one set of trailers. The metadata consists of the values.
type trailer struct {
	values   [2]string // of ratelimit and ratelimit-policy
	metadata metadata.MD
}

// of returns the trailers of an admitted call, nil if it has none.
func (t *trailers) of(a *httplimit.Answer) metadata.MD {
	figures := a.AppendRateLimit(make([]byte, 0, 96))
	if len(figures) == 0 {
		return nil
	}
	place := &t[maphash.Bytes(trailerSeed, figures)%uint64(len(t))]
	if k := place.Load(); k != nil && k.values[0] == string(figures) && k.values[1] == a.RateLimitPolicy() {
		return k.metadata
	}
	k := &trailer{values: [2]string{string(figures), a.RateLimitPolicy()}}
	k.metadata = metadata.MD{rateLimit: k.values[:1:1], policies: k.values[1:]}
	place.Store(k)
	return k.metadata
}
