package keyed_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/keyed"
)

// savedClients is the content of the file: states are valid only with their limits, origin
// and latest reading.
type savedClients struct {
	Limits []tokenbucket.Limit
	Origin time.Time
	Latest time.Duration
	States map[string][]tokenbucket.State
}

func saveClients(clients *keyed.Buckets[string]) ([]byte, error) {
	states := maps.Collect(clients.All()) // before Origin and Latest
	return json.Marshal(savedClients{clients.Limits(), clients.Origin(), clients.Latest(), states})
}

func restoreClients(clients *keyed.Buckets[string], file []byte) error {
	var s savedClients
	if err := json.Unmarshal(file, &s); err != nil {
		return err
	}
	return clients.Restore(s.Limits, s.Origin, s.Latest, maps.All(s.States))
}

// A gateway saves its buckets before it stops, and restores them when it starts, so that
// a deployment gives no client a new burst. The buckets refill for the time between.
func ExampleBuckets_Restore() {
	mock := clock.NewMock()
	limit := tokenbucket.Limit{Capacity: 10, RefillPerSec: 0.5}
	clients, err := keyed.New[string](limit, keyed.WithClock(mock))
	if err != nil {
		fmt.Println(err)
		return
	}
	clients.TryAcquire("alice", 9)
	file, err := saveClients(clients)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(string(file))

	mock.Add(4 * time.Second)
	clients, err = keyed.New[string](limit, keyed.WithClock(mock))
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := restoreClients(clients, file); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(clients.Tokens("alice"), clients.Tokens("bob"))
	// Output:
	// {"Limits":[{"Capacity":10,"RefillPerSec":0.5}],"Origin":"1970-01-01T00:00:00Z","Latest":0,"States":{"alice":[{"Balance":1,"Anchor":0}]}}
	// 3 10
}
