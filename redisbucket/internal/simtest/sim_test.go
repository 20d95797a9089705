package simtest

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

var (
	hours = flag.Int("hours", 0, "how many hours TestTrouble simulates; by default 1000, with -short 20, with the race detector 4")
	seed  = flag.Uint64("seed", 1, "the first seed of TestTrouble")
)

// setting holds all that determines a run.
type setting struct {
	Seed   uint64
	Hours  int
	Bug    Bug
	Faults string // "all", "none" or "cuts"
	Steps  bool   // whether the result has the runs of the script
}

func (s setting) String() string {
	return fmt.Sprintf("seed %d, %d hours, faults: %s", s.Seed, s.Hours, s.Faults)
}

var faultsByName = map[string][]fault{"all": allFaults, "none": nil, "cuts": {cuts}}

const (
	variable = "TOKENBUCKET_SIMULATE" // the setting, in a process that carries out a run
	mark     = "result: "
)

// TestRun carries out a run if another test has started this process for it: go-redis keeps
// timers from one bubble to the next, so there is one process for each run.
func TestRun(t *testing.T) {
	text, ok := os.LookupEnv(variable)
	if !ok {
		t.Skip("the other tests start this one")
	}
	var s setting
	require.NoError(t, json.Unmarshal([]byte(text), &s))
	var result Result
	synctest.Test(t, func(t *testing.T) { result = simulate(s.Seed, s.Hours, s.Bug, faultsByName[s.Faults], s.Steps) })
	encoded, err := json.Marshal(result)
	require.NoError(t, err)
	fmt.Printf("%s%s\n", mark, encoded)
}

// carryOut carries out a run in a process of its own. It uses one processor, which keeps
// the order of events at the same instant.
func carryOut(t testing.TB, s setting) (result Result) {
	encoded, err := json.Marshal(s)
	require.NoError(t, err)
	command := exec.Command(os.Args[0], "-test.run=^TestRun$", "-test.timeout=10m")
	command.Env = append(os.Environ(), variable+"="+string(encoded), "GOMAXPROCS=1", "GODEBUG=adaptivestackstart=1", "GOGC=400")
	output, err := command.CombinedOutput()
	require.NoError(t, err, "%v: %s", s, last(output, 8000))
	_, line, found := bytes.Cut(output, []byte(mark))
	require.True(t, found, "%s", output)
	require.NoError(t, json.NewDecoder(bytes.NewReader(line)).Decode(&result))
	return result
}

// last returns the end of a text.
func last(text []byte, n int) []byte { return text[max(0, len(text)-n):] }

// carryOutAll carries out several runs, as many at once as there are processors.
func carryOutAll(t testing.TB, settings []setting) []Result {
	results := make([]Result, len(settings))
	var group sync.WaitGroup
	free := make(chan struct{}, runtime.NumCPU())
	for i, s := range settings {
		free <- struct{}{}
		group.Go(func() {
			defer func() { <-free }()
			results[i] = carryOut(t, s)
		})
	}
	group.Wait()
	return results
}

// requireRight fails the test if a promise was broken.
func requireRight(t testing.TB, s setting, r Result) {
	if len(r.Wrong) > 0 {
		t.Errorf("%v: %d promises were broken:\n%s\nWhat happened:\n%s\nAdd the seed to testdata/seeds once it is corrected.",
			s, len(r.Wrong), strings.Join(r.Wrong[:min(10, len(r.Wrong))], "\n"), strings.Join(r.Log, "\n"))
	}
}

// series returns settings for a total number of hours, with consecutive seeds.
func series(first uint64, total, each int) (all []setting) {
	for n := 0; n < total; n += each {
		all = append(all, setting{Seed: first + uint64(n/each), Hours: each, Faults: "all"})
	}
	return all
}

// fewer returns n, or withRace if the race detector is on, since runs then take many times
// as long.
func fewer(n, withRace int) int {
	if isRace {
		return withRace
	}
	return n
}

func TestWithoutTrouble(t *testing.T) {
	for s := range uint64(fewer(3, 1)) {
		s := setting{Seed: s, Hours: 1, Faults: "none"}
		r := carryOut(t, s)
		requireRight(t, s, r)
		require.Zero(t, r.Failed)
		require.Greater(t, r.Granted, r.Calls/4)
	}
}

func TestTrouble(t *testing.T) {
	total := *hours
	switch {
	case total > 0:
	case isRace:
		total = 4
	case testing.Short():
		total = 20
	default:
		total = 1000
	}
	settings := series(*seed, total, 10)
	var calls, granted, failed, faults int
	for i, r := range carryOutAll(t, settings) {
		requireRight(t, settings[i], r)
		calls, granted, failed, faults = calls+r.Calls, granted+r.Granted, failed+r.Failed, faults+r.Faults
	}
	t.Logf("%d hours, %d seeds, %d faults: of %d calls %d were granted and %d failed", total, len(settings), faults, calls, granted, failed)
}

// TestKeptSeeds repeats the runs that once showed a fault.
func TestKeptSeeds(t *testing.T) {
	if isRace {
		t.Skip("they take long with the race detector")
	}
	text, err := os.ReadFile("testdata/seeds")
	require.NoError(t, err)
	var settings []setting
	for line := range strings.Lines(string(text)) {
		s := setting{Faults: "all"}
		if strings.HasPrefix(line, "#") {
			continue
		}
		_, err := fmt.Sscan(line, &s.Seed, &s.Hours)
		require.NoError(t, err, line)
		settings = append(settings, s)
	}
	for i, r := range carryOutAll(t, settings) {
		requireRight(t, settings[i], r)
	}
}

func TestASeedRepeatsItsRun(t *testing.T) {
	settings := series(100, fewer(6, 2), 1)
	first, second := carryOutAll(t, settings), carryOutAll(t, settings)
	for i, s := range settings {
		require.Equal(t, first[i].Digest, second[i].Digest, "%v", s)
		require.Equal(t, first[i], second[i])
	}
	require.NotEqual(t, first[0].Digest, first[1].Digest)
}

// The checks find each deliberate bug, with every seed.
func TestBugsAreFound(t *testing.T) {
	for bug, sign := range map[Bug]string{
		Replay:      `its cost was taken or given back twice|process \d+ had -`,
		GiveTwice:   `process \d+ had -`,
		ClientClock: `which left -`,
	} {
		t.Run(string(bug), func(t *testing.T) {
			settings := series(1, fewer(30, 10), 10)
			for i := range settings {
				settings[i].Bug, settings[i].Faults = bug, "none"
				if bug == Replay {
					settings[i].Faults = "cuts"
				}
			}
			for i, r := range carryOutAll(t, settings) {
				require.Regexp(t, sign, strings.Join(r.Wrong, "\n"), "%v", settings[i])
			}
		})
	}
}
