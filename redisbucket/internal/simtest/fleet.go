package simtest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"
	"time"
)

// fleet is a run in progress.
type fleet struct {
	*world
	plan    *plan
	places  []*process // the processes that run
	dead    []*process
	calling sync.WaitGroup
	calms   []calm
	log     []string // what happened
	errs    []string // violations so far
}

// calm is an instant at which all faults are over.
type calm struct {
	at   time.Time
	dead map[*process]int // dead connections, which the client has not noticed
}

// Result is the result of a run.
type Result struct {
	Digest  string // of all calls and all runs of the script
	Calls   int
	Granted int
	Failed  int // calls that the server did not decide in time
	Faults  int
	Log     []string // what happened
	Wrong   []string // violations of the promises
	Steps   []step   // the runs of the script, if requested
}

// simulate carries out a run. It is called in a synctest bubble.
func simulate(seed uint64, hours int, bug Bug, faults []fault, withSteps bool) Result {
	w := newWorld(seed, bug)
	w.weather = fair
	f := &fleet{world: w, plan: newPlan(w.random(3), hours, faults)}
	for id := range processes {
		f.places = append(f.places, newProcess(w, id, f.plan.services))
	}
	for _, e := range f.plan.events {
		time.Sleep(e.at - time.Since(w.origin))
		f.happen(e)
	}
	f.calling.Wait()
	time.Sleep(5 * time.Second) // tokens of late answers are given back, and leases end
	f.end()
	r := f.result()
	if withSteps {
		r.Steps = f.steps()
	}
	return r
}

func (f *fleet) happen(e event) {
	if e.what == "" {
		e.do(f)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log = append(f.log, fmt.Sprintf("%v: %s", e.at, e.what))
	e.do(f)
}

// start makes a call from the process at a place.
func (f *fleet) start(c *call, place int) {
	c.process = f.places[place]
	f.calling.Go(c.do)
}

// at returns the process at a place.
func (f *fleet) at(place int) *process { return f.places[place%processes] }

// replaceLocked lets a process die, and puts another one in its place.
func (f *fleet) replaceLocked(place int) {
	place %= processes
	f.places[place].dieLocked()
	f.dead = append(f.dead, f.places[place])
	f.places[place] = newProcess(f.world, processes+len(f.dead), f.plan.services)
}

// calm notes that all faults are over.
func (f *fleet) calm() {
	c := calm{time.Now(), map[*process]int{}}
	for _, p := range f.places {
		c.dead[p] = f.deadLocked(p)
	}
	f.calms = append(f.calms, c)
}

// end ends all processes.
func (f *fleet) end() {
	var group sync.WaitGroup
	for _, p := range f.dead {
		group.Go(func() { _ = p.close() })
	}
	group.Wait()
	for _, p := range f.places {
		begin := time.Now()
		if err := p.close(); err != nil {
			f.errs = append(f.errs, fmt.Sprintf("process %d: Close: %v", p.id, err))
		}
		if took := time.Since(begin); took > 2*timeout*time.Duration(len(p.buckets)) {
			f.errs = append(f.errs, fmt.Sprintf("process %d: Close took %v", p.id, took))
		}
	}
	time.Sleep(10 * time.Second) // go-redis' clients notice within 6 s that they are closed
}

// step is a run of the script: the state before, and the result.
type step struct {
	Key, Before, After, Answer string
	Args                       []string
	Micros                     int64 // by the server's clock
}

// steps returns the runs of the script.
func (f *fleet) steps() []step {
	steps := make([]step, len(f.runs))
	for i, r := range f.runs {
		steps[i] = step{r.key, r.before, r.after, r.answer, r.args, r.clock.UnixMicro()}
	}
	return steps
}

func (f *fleet) result() Result {
	r := Result{Digest: f.digest(), Calls: len(f.plan.calls), Faults: f.plan.troubles, Log: f.log}
	for _, c := range f.plan.calls {
		if c.granted {
			r.Granted++
		}
		if c.failed() && !c.died {
			r.Failed++
		}
	}
	r.Wrong = append(f.errs, f.check()...)
	return r
}

// digest returns a hash of all events.
func (f *fleet) digest() string {
	h := sha256.New()
	for _, c := range f.plan.calls {
		fmt.Fprintln(h, c)
	}
	for _, r := range f.runs {
		fmt.Fprintln(h, r.process, r.key, r.args, r.sent.UnixNano(), r.at.UnixNano(), r.read.UnixNano(), r.answer)
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}
