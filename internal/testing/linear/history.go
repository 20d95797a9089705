// Package linear checks that buckets are linearizable. Several goroutines call a bucket at the
// same time. Then there must be an order of the calls in which a bucket without concurrency
// returns the same answers, to the nanosecond. A call that returned before another one began
// comes first in that order.
//
// Porcupine looks for the order. The bucket without concurrency is the model: it calls the
// methods of Limits one after the other. The answers depend on the time, so each call is
// recorded with its readings of the clock. The last reading of a call decided. For keyed
// buckets, any reading of the call may have decided, since one call to them can make several
// calls to a bucket. The clock is the system clock, so buckets decide without their lock as in
// production. But it reports its readings, and now and then it makes a caller wait after a
// reading until others have made some calls. Production code does not become slower by this.
package linear

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/internal/timeline"
)

// history is the calls of some clients, each of which is a goroutine.
type history struct {
	clients sync.Map     // of *client, by the number of the goroutine
	ticks   atomic.Int64 // counts beginnings and ends of calls
	mu      sync.Mutex
	calls   []porcupine.Operation
}

// client makes one call after another.
type client struct {
	*history
	id       int
	random   *rand.Rand
	readings []time.Duration // of the clock, in the current call
	stalls   bool
}

// clock returns the system clock, watched by the history.
func (h *history) clock() tokenbucket.Clock {
	return timeline.Watched{Saw: func(reading time.Duration) {
		if c, ok := h.clients.Load(goroutine()); ok {
			c.(*client).saw(reading)
		}
	}}
}

// saw records a reading, and sometimes lets other clients run before the client
// continues.
func (c *client) saw(reading time.Duration) {
	c.readings = append(c.readings, reading)
	if !c.stalls || c.random.IntN(3) > 0 {
		return
	}
	until := c.ticks.Load() + 1 + c.random.Int64N(8)
	for range 200 { // no longer: the others may be done, or wait for a lock that this client holds
		if c.ticks.Load() >= until {
			return
		}
		runtime.Gosched()
	}
}

// goroutine returns the number of the current goroutine.
func goroutine() int {
	var text [64]byte
	fields := bytes.Fields(text[:runtime.Stack(text[:], false)]) // goroutine 7 [running]:
	number, err := strconv.Atoi(string(fields[1]))
	if err != nil {
		panic(err)
	}
	return number
}

// run starts clients that make calls at the same time, and waits for them. Each makes the
// given number of calls.
func (h *history) run(seed uint64, clients, calls int, call func(*client)) {
	var group sync.WaitGroup
	for id := range clients {
		group.Go(func() {
			c := &client{history: h, id: id, random: rand.New(rand.NewPCG(seed, uint64(id))), stalls: clients > 1}
			number := goroutine()
			h.clients.Store(number, c)
			defer h.clients.Delete(number)
			for range calls {
				call(c)
			}
		})
	}
	group.Wait()
}

// record makes one call and adds it to the history.
func (c *client) record(in input, call func(*output)) {
	var out output
	c.readings = nil
	begin := c.ticks.Add(1)
	call(&out)
	end := c.ticks.Add(1)
	out.readings = c.readings
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, porcupine.Operation{ClientId: c.id, Input: in, Call: begin, Output: out, Return: end})
}

// describe returns a history as text, with the longest orders that porcupine found.
func (h *history) describe(model porcupine.Model) string {
	var text strings.Builder
	slices.SortFunc(h.calls, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	for i, c := range h.calls {
		fmt.Fprintf(&text, "%3d: %4d to %4d, client %d: %s\n", i, c.Call, c.Return, c.ClientId, model.DescribeOperation(c.Input, c.Output))
	}
	_, info := porcupine.CheckOperationsVerbose(model, h.calls, time.Second)
	for _, partial := range info.PartialLinearizations() {
		for _, order := range partial {
			fmt.Fprintf(&text, "an order of %d calls: %v\n", len(order), order)
		}
	}
	return text.String()
}
