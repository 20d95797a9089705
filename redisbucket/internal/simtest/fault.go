package simtest

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// fault is a kind of fault. It returns one instance of it.
type fault func(r *rand.Rand) trouble

// trouble is one instance of a fault: its length, and the functions that begin and end
// it. They are called with the world locked.
type trouble struct {
	what       string
	length     time.Duration
	begin, end func(f *fleet) // end may be nil
}

// addFault adds a fault, and returns when it is over.
func (p *plan) addFault(make fault, at time.Duration) time.Duration {
	t := make(p.random)
	p.troubles++
	p.add(at, t.what, t.begin)
	if t.end != nil {
		p.add(at+t.length, "end of "+t.what, t.end)
	}
	return at + t.length
}

// allFaults has every kind of fault.
var allFaults = []fault{badWeather, slowWeather, cuts, stop, restart, failover, flush, silence, hangUp, partition, death}

func underWeather(what string, length time.Duration, w weather) trouble {
	return trouble{what, length, func(f *fleet) { f.weather = w }, func(f *fleet) { f.weather = fair }}
}

// badWeather has all faults of networks, at low rates.
func badWeather(r *rand.Rand) trouble {
	w := weather{fair.least, between(r, 5*time.Millisecond, 100*time.Millisecond), r.Float64() * 0.1, r.Float64() * 0.03, r.Float64() * 0.1}
	return underWeather("bad weather", between(r, time.Second, 8*time.Second), w)
}

// slowWeather is latency around the timeout.
func slowWeather(r *rand.Rand) trouble {
	w := weather{fair.least, between(r, 100*time.Millisecond, 700*time.Millisecond), r.Float64() * 0.3, 0, 0}
	return underWeather("latency", between(r, time.Second, 8*time.Second), w)
}

// cuts breaks connections in the middle of requests and answers.
func cuts(r *rand.Rand) trouble {
	w := weather{fair.least, fair.most, 0, 0, 0.05 + r.Float64()*0.4}
	return underWeather("cuts", between(r, time.Second, 8*time.Second), w)
}

// stop makes the server hang for a while, and then answer all requests.
func stop(r *rand.Rand) trouble {
	return trouble{"stop", between(r, 50*time.Millisecond, 3*time.Second),
		func(f *fleet) { f.server.stopLocked() }, func(f *fleet) { f.server.continueLocked() }}
}

// restart stops the server, and starts it again, with its data or without.
func restart(r *rand.Rand) trouble {
	keep := r.IntN(2) == 0
	return trouble{fmt.Sprintf("restart, data kept: %v", keep), between(r, 10*time.Millisecond, 3*time.Second),
		func(f *fleet) { f.server.crashLocked() }, func(f *fleet) { f.server.restartLocked(keep) }}
}

// failover lets a replica take over. Its clock is behind.
func failover(r *rand.Rand) trouble {
	behind, back, silently := between(r, 0, lag), between(r, 0, 20*time.Second).Truncate(time.Microsecond), r.IntN(2) == 0
	return trouble{fmt.Sprintf("failover, %v of data lost, clock %v back, silently: %v", behind, back, silently), 0,
		func(f *fleet) { f.server.failOverLocked(behind, f.server.offset-back, silently) }, nil}
}

// flush makes the server forget the script.
func flush(*rand.Rand) trouble {
	return trouble{"script flush", 0, func(f *fleet) { f.server.scripts = map[string]script{} }, nil}
}

// silence makes all connections of some processes dead, and the clients do not notice.
func silence(r *rand.Rand) trouble {
	first, n := r.IntN(processes), 1+r.IntN(processes)
	return trouble{fmt.Sprintf("silence of %d processes", n), 0, func(f *fleet) {
		for i := range n {
			f.eachLocked(f.at(first+i), func(c *conn) { c.silent = true })
		}
	}, nil}
}

// hangUp ends all connections.
func hangUp(*rand.Rand) trouble {
	return trouble{"connections closed", 0, func(f *fleet) { f.eachLocked(nil, (*conn).closeLocked) }, nil}
}

// partition separates one process from the server for a while.
func partition(r *rand.Rand) trouble {
	slot := r.IntN(processes)
	return trouble{fmt.Sprintf("partition of %d", slot), between(r, 100*time.Millisecond, 5*time.Second),
		func(f *fleet) { f.at(slot).severed = true },
		func(f *fleet) { f.at(slot).severed = false }}
}

// death ends some processes without warning. Others take their places.
func death(r *rand.Rand) trouble {
	first, n := r.IntN(processes), 1+r.IntN(5)
	return trouble{fmt.Sprintf("death of %d processes", n), 0, func(f *fleet) {
		for i := range n {
			f.replaceLocked(first + i)
		}
	}, nil}
}
