package main

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/keyed"
)

// limitedClients lists the clients whose buckets take longest to fill. It makes the list
// at most once a second, for all pages together.
type limitedClients struct {
	clients *keyed.Buckets[string]
	now     func() time.Time

	mu   sync.Mutex
	made time.Time
	list []limitedClient
}

// limitedClient is a row of the list.
type limitedClient struct {
	Client string  `json:"client"` // its address, shortened
	Tokens float64 `json:"tokens"` // below 0 in debt
	Full   float64 `json:"full"`   // seconds until its bucket is full
}

// most is how many clients are listed.
const most = 20

func (l *limitedClients) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(l.latest()) // an error means that the client has gone
}

func (l *limitedClients) latest() []limitedClient {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := l.now(); l.list == nil || now.Sub(l.made) >= time.Second || now.Before(l.made) {
		l.made, l.list = now, l.collect()
	}
	return l.list
}

// collect returns the clients whose buckets take longest to fill.
func (l *limitedClients) collect() []limitedClient {
	type client struct {
		key    string
		states []tokenbucket.State
		full   time.Duration
	}
	limits := tokenbucket.Limits(l.clients.Limits())
	var all []client
	buckets := l.clients.All()
	for key, states := range buckets {
		all = append(all, client{key, states, 0})
	}
	now := l.clients.Latest()
	for i := range all {
		all[i].full = limits.UntilFull(all[i].states, now)
	}
	slices.SortFunc(all, func(a, b client) int { return cmp.Or(cmp.Compare(b.full, a.full), strings.Compare(a.key, b.key)) })
	list := []limitedClient{}
	for _, c := range all[:min(most, len(all))] {
		if c.full > 0 {
			list = append(list, limitedClient{shorten(c.key), limits.Tokens(c.states, now), c.full.Seconds()})
		}
	}
	return list
}

// shorten hides the end of an address.
func shorten(key string) string {
	if addr, err := netip.ParseAddr(key); err == nil && addr.Is4() {
		return key[:strings.LastIndexByte(key, '.')] + ".*"
	}
	if prefix, err := netip.ParsePrefix(key); err == nil {
		if short, err := prefix.Addr().Prefix(32); err == nil {
			return strings.TrimSuffix(short.Addr().String(), "::") + ":*"
		}
	}
	return "*"
}
