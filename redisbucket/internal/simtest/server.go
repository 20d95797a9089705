package simtest

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// server is the server at the address. After a failover it is another one. The world's
// mutex guards it.
type server struct {
	world   *world
	engine  *engine
	offset  time.Duration // its clock minus the true time, whole microseconds
	clock   time.Time     // while a script runs: the server's time
	data    map[string]entry
	truths  map[string]truth
	scripts map[string]script
	changes []change // of the last seconds, which a replica may not have received

	stopped bool // requests wait
	waiting []request
	down    bool // no connections
}

// entry is the value of a key.
type entry struct {
	value   string
	expires int64 // the last millisecond of its life, by the server's clock
}

// change is the state of a key before a write.
type change struct {
	at     time.Time
	key    string
	entry  entry
	truth  truth
	stored bool // whether there was an entry
	known  bool // whether there was a truth
}

// lag is the most by which a replica is behind.
const lag = 2 * time.Second

// request is a command that has arrived.
type request struct {
	from  *conn
	words []string
	sent  time.Time
}

// run is an execution of the script.
type run struct {
	process int
	key     string
	args    []string // with the limits
	sent    time.Time
	at      time.Time
	read    time.Time // when the client had read the answer; zero for never
	clock   time.Time // the server's
	before  string    // the value, "" if there was none
	after   string    // the value
	answer  string
	taken   float64 // tokens; below 0 if they were given back
	left    float64 // the true level after that
}

func newServer(w *world) *server {
	s := &server{world: w}
	s.engine = newEngine(s)
	s.eraseLocked()
	return s
}

// eraseLocked deletes all data.
func (s *server) eraseLocked() {
	s.data, s.truths, s.scripts, s.changes = map[string]entry{}, map[string]truth{}, map[string]script{}, nil
}

// receiveLocked carries a request out, or keeps it while the server is stopped.
func (s *server) receiveLocked(r request) {
	if s.stopped {
		s.waiting = append(s.waiting, r)
		return
	}
	s.handleLocked(r)
}

func (s *server) handleLocked(r request) {
	text, done := s.executeLocked(r)
	r.from.answerLocked([]byte(text), done)
}

// executeLocked returns the answer, and the run if it is that of the script.
func (s *server) executeLocked(r request) (string, *run) {
	switch r.words[0] {
	case "hello":
		return "%1\r\n$5\r\nproto\r\n:3\r\n", nil
	case "client":
		if r.words[1] == "setinfo" {
			return "+OK\r\n", nil
		}
	case "eval":
		compiled, err := s.engine.compile(r.words[1])
		if err != nil {
			return fmt.Sprintf("-ERR %v\r\n", err), nil
		}
		sum := sha1.Sum([]byte(r.words[1]))
		s.scripts[hex.EncodeToString(sum[:])] = compiled
		return s.runLocked(r, compiled)
	case "evalsha":
		if compiled, ok := s.scripts[r.words[1]]; ok {
			return s.runLocked(r, compiled)
		}
		return "-NOSCRIPT No matching script. Please use EVAL.\r\n", nil
	}
	return fmt.Sprintf("-ERR unknown command '%s'\r\n", r.words[0]), nil
}

// runLocked runs the script: evalsha DIGEST 1 KEY ARG...
func (s *server) runLocked(r request, compiled script) (string, *run) {
	done := &run{process: r.from.owner.id, key: r.words[3], args: r.words[4:], sent: r.sent, at: time.Now()}
	s.clock = done.at.Add(s.offset)
	if s.world.bug == ClientClock {
		s.clock = s.clock.Add(r.from.owner.skew)
	}
	done.clock = s.clock
	s.keepLocked(done.key)
	done.before = s.get(done.key)
	answer, err := s.engine.run(compiled, done.key, done.args)
	if err != nil {
		return fmt.Sprintf("-%v\r\n", err), nil
	}
	done.answer, done.after = answer, s.get(done.key)
	done.taken = taken(done)
	done.left = s.judgeLocked(done)
	s.world.runs = append(s.world.runs, done)
	return fmt.Sprintf("$%d\r\n%s\r\n", len(answer), answer), done
}

// keepLocked notes how a key is before a script runs.
func (s *server) keepLocked(key string) {
	now := time.Now()
	s.changes = slices.DeleteFunc(s.changes, func(c change) bool { return now.Sub(c.at) > lag })
	c := change{at: now, key: key}
	c.entry, c.stored = s.data[key]
	c.truth, c.known = s.truths[key]
	s.changes = append(s.changes, c)
}

// stopLocked makes requests wait.
func (s *server) stopLocked() { s.stopped = true }

// continueLocked carries out the requests that have waited.
func (s *server) continueLocked() {
	s.stopped = false
	waiting := s.waiting
	s.waiting = nil
	for _, r := range waiting {
		if r.from.end == nil {
			s.handleLocked(r)
		}
	}
}

// crashLocked ends all connections.
func (s *server) crashLocked() {
	s.down, s.waiting, s.stopped = true, nil, false
	s.world.eachLocked(nil, (*conn).closeLocked)
}

// restartLocked starts the server again, with its data or without.
func (s *server) restartLocked(keep bool) {
	s.down, s.scripts = false, map[string]script{}
	if !keep {
		s.eraseLocked()
		s.world.losses = append(s.world.losses, time.Now())
	}
}

// failOverLocked lets a replica take over. The argument behind is a duration: the replica lacks
// the writes that are younger than that. Its clock has another offset. Connections to the
// former master end or, if silently is true, are dead.
func (s *server) failOverLocked(behind, offset time.Duration, silently bool) {
	s.world.losses = append(s.world.losses, time.Now())
	for _, c := range slices.Backward(s.changes) {
		if time.Since(c.at) < behind {
			restore(s.data, c.key, c.entry, c.stored)
			restore(s.truths, c.key, c.truth, c.known)
		}
	}
	s.changes, s.waiting, s.stopped, s.down = nil, nil, false, false
	s.offset, s.scripts = offset, map[string]script{}
	s.world.eachLocked(nil, func(c *conn) {
		if silently {
			c.silent = true
		} else {
			c.closeLocked()
		}
	})
}

func restore[V any](m map[string]V, key string, value V, there bool) {
	if there {
		m[key] = value
	} else {
		delete(m, key)
	}
}

// get returns the value of a key, "" if there is none or it has expired.
func (s *server) get(key string) string {
	if e := s.data[key]; s.clock.UnixMilli() <= e.expires {
		return e.value
	}
	return ""
}

func (s *server) set(key, value string, ttl int64) {
	s.data[key] = entry{value, s.clock.UnixMilli() + ttl}
}

// time returns the answer of TIME.
func (s *server) time() (seconds, micros string) {
	now := s.clock.UnixMicro()
	return strconv.FormatInt(now/1e6, 10), strconv.FormatInt(now%1e6, 10)
}
