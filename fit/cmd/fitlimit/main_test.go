package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// readme is a log of the requests at 0, 0, 0, 0, 1, 2, 3 and 4 s.
var readme = logAt(0, 0, 0, 0, 1, 2, 3, 4)

func logAt(seconds ...int) string {
	var text strings.Builder
	for i, s := range seconds {
		fmt.Fprintf(&text, "192.0.2.%d - - [30/Nov/2026:12:00:%02d +0000] \"GET / HTTP/1.1\" 200 1\n", 1+i%2, s)
	}
	return text.String()
}

func fitlimit(t *testing.T, log string, args ...string) string {
	var out bytes.Buffer
	require.NoError(t, run(append([]string{"-picture", ""}, args...), strings.NewReader(log), &out, io.Discard))
	return out.String()
}

func TestTableOfTheReadmesTrace(t *testing.T) {
	out := fitlimit(t, readme, "-key", "none", "-refill", "0.25", "-refill", "0.5", "-refill", "1", "-refill", "2", "-refused", "0", "-refused", "0.25")
	for _, row := range []string{"0.25             7             5  0.25", "0.5             6             4   0.5", "1             4             2     1", "2             4             2     2"} {
		require.Contains(t, out, row)
	}
	require.Contains(t, out, "8 requests in one bucket")
	require.Contains(t, out, "bucket := tokenbucket.MustNew(tokenbucket.Limit{Capacity: 5, RefillPerSec: 1})")
}

func TestTry(t *testing.T) {
	out := fitlimit(t, readme, "-key", "none", "-try", "3,0.5")
	require.Contains(t, out, "refused")
	require.Regexp(t, `3 +0\.5 +3 +37\.5 % +1 +1s +2s`, out)
	require.Contains(t, out, "3,0.5 refused first: a request at 2026-11-30T12:00:00Z, a cost of 1.")
	out = fitlimit(t, readme, "-try", "1,0.1")
	require.Regexp(t, `3 +4 +192\.0\.2\.1`, out)
}

func TestJSONOutput(t *testing.T) {
	var f struct {
		Requests int
		Rows     []struct {
			Refill     float64
			Capacities []float64
			Band       float64
		}
	}
	require.NoError(t, json.Unmarshal([]byte(fitlimit(t, readme, "-json", "-key", "none", "-refill", "0.5")), &f))
	require.Equal(t, 8, f.Requests)
	require.Equal(t, 0.5, f.Rows[0].Band)
	require.Equal(t, []float64{6, 6, 6}, f.Rows[0].Capacities)
}

// Other programs depend on these names.
func TestNamesInJSON(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, json.Compact(&out, []byte(fitlimit(t, logAt(0, 0, 1, 0)+"x\n", "-json", "-refill", "0.5", "-try", "1,0.5"))))
	require.JSONEq(t, `{"Requests":4,"Keys":2,"From":"2026-11-30T12:00:00Z","To":"2026-11-30T12:00:01Z",
		"Broken":1,"FirstBroken":"-: line 5: it is not of the form: address ident user [time] \"request\" status bytes: x",
		"WholeSeconds":true,"Shares":[0],"Rows":[{"Refill":0.5,"Capacities":[2],"Band":0.5}],
		"Neediest":[{"Key":"192.0.2.2","Capacity":2,"Refill":0.5},{"Key":"192.0.2.1","Capacity":1.5,"Refill":0.5}],
		"Tries":[{"Limit":{"Capacity":1,"RefillPerSec":0.5},"Refused":2,"Share":0.5,"RefusedKeys":2,
			"First":{"Key":"192.0.2.2","At":"2026-11-30T12:00:00Z","Cost":1,"Wait":2000000000},
			"MedianWait":1000000000,"LongestWait":2000000000,
			"MostRefused":[{"Key":"192.0.2.1","Requests":2,"Refused":1},{"Key":"192.0.2.2","Requests":2,"Refused":1}]}]}`, out.String())
}

func TestRefillsAreChosenFromTheLog(t *testing.T) {
	for _, log := range []string{readme, logAt(7), logAt(0, 0, 0), logAt(0, 59)} {
		out := fitlimit(t, log)
		require.Contains(t, out, "refill/s")
	}
}

func TestChosenRefillsAreNotBelowTheLeast(t *testing.T) {
	for least, first := range map[string]string{"0.333": "0.34", "0.0142": "0.015", "123": "130", "0.25": "0.25", "1e-9": "1e-06"} {
		require.Contains(t, fitlimit(t, logAt(7), "-least", least), "RefillPerSec: "+first+"}", least)
	}
}

func TestTheLimitInGoIsExact(t *testing.T) {
	require.Contains(t, fitlimit(t, readme, "-refill", "1.3333333333333333"), "RefillPerSec: 1.3333333333333333}")
}

func TestTheLeastCanHaveAllDigits(t *testing.T) {
	for least, first := range map[string]string{"0.9999999999999999": "1", "0.12000000000000001": "0.12000000000000001", "1000.0000000000001": "1000.0000000000001"} {
		require.Contains(t, fitlimit(t, logAt(7), "-least", least), "RefillPerSec: "+first+"}", least)
	}
}

func TestBrokenLinesAreShown(t *testing.T) {
	out := fitlimit(t, readme+"nonsense\n")
	require.Contains(t, out, "1 lines could not be read; the first is -: line 9: ")
}

func TestPictureOfExtremeNumbers(t *testing.T) {
	name := filepath.Join(t.TempDir(), "fit.html")
	for _, args := range [][]string{{"-refill", "5e-324"}, {"-refill", "1e308"}, {"-try", "1,1e308", "-try", "1,5e-324"}} {
		require.NoError(t, run(append(args, "-picture", name), strings.NewReader(readme), io.Discard, io.Discard), args)
	}
	tiny := "time,address,c\n2026-11-30T12:00:00Z,192.0.2.1,5e-324\n"
	require.NoError(t, run([]string{"-cost", "c", "-picture", name}, strings.NewReader(tiny), io.Discard, io.Discard))
}

func TestPicture(t *testing.T) {
	name := filepath.Join(t.TempDir(), "fit.html")
	log := filepath.Join(t.TempDir(), "access.log")
	require.NoError(t, os.WriteFile(log, []byte(readme), 0o600))
	var out bytes.Buffer
	require.NoError(t, run([]string{"-picture", name, "-try", "3,0.5", log}, nil, &out, io.Discard))
	page, err := os.ReadFile(name)
	require.NoError(t, err)
	for _, part := range []string{"<svg", "none refused", "192.0.2.1", "keyed.New[string](", "What the candidates would have refused"} {
		require.Contains(t, string(page), part)
	}
	require.NotRegexp(t, `(src|href)="http`, string(page), "the page loads nothing")
	require.Contains(t, out.String(), "The picture is in "+name)
}

func TestBadArgumentsAreErrors(t *testing.T) {
	for _, row := range []struct{ log, args, want string }{
		{"", "", "the log is empty"},
		{"nonsense [\nmore [\n", "-format clf", "none of 2 lines could be read"},
		{readme, "-refused 1", "choose a share from 0 to below 1"},
		{readme, "-refill 0", "refill"},
		{readme, "-try 10", "write a capacity and a refill"},
		{readme, "-try 0,1", "capacity"},
		{readme, "-least -1", "choose 0 to 1e12"},
		{readme, "-keys -1", "choose 0 or more"},
		{readme, "- -", "name each log once"},
		{readme, "main.go main.go", "name each log once"},
		{readme, "-price x", "write a pattern and a cost"},
		{readme, "-price /=2 -cost bytes", "choose one of the two"},
		{readme, "no-such-file", "no-such-file"},
		{readme, "-cost bytes -price", "flag needs an argument"},
	} {
		t.Run(row.args, func(t *testing.T) {
			err := run(append([]string{"-picture", ""}, strings.Fields(row.args)...), strings.NewReader(row.log), io.Discard, io.Discard)
			require.ErrorContains(t, err, row.want)
		})
	}
}

// picture draws the picture of a log and returns its page.
func picture(t *testing.T, log string, args ...string) string {
	name := filepath.Join(t.TempDir(), "fit.html")
	require.NoError(t, run(append([]string{"-picture", name}, args...), strings.NewReader(log), io.Discard, io.Discard))
	page, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(page)
}

// A key whose requests are all free needs a capacity of 0, which a logarithmic axis cannot
// show.
func TestPictureWithAKeyOfFreeRequests(t *testing.T) {
	free := "192.0.2.9 - - [30/Nov/2026:12:00:00 +0000] \"GET /\" 304 -\n"
	page := picture(t, readme+free, "-cost", "bytes")
	require.Contains(t, page, "192.0.2.1")
	require.NotContains(t, page, "192.0.2.9")
}

// With one refill, each curve is a single point, which a line would not show.
func TestPictureOfOneRefill(t *testing.T) {
	require.Contains(t, picture(t, readme, "-refill", "2"), "<path")
	require.Contains(t, picture(t, logAt(7), "-refill", "2", "-refused", "0", "-keys", "0"), "<path")
	require.NotContains(t, picture(t, readme, "-keys", "0"), "Refused first")
}

func TestNoKeysAreListedWithKeys0(t *testing.T) {
	require.NotContains(t, fitlimit(t, readme, "-keys", "0"), "refuses these first")
	require.NotContains(t, fitlimit(t, readme, "-keys", "0", "-try", "1,0.1"), "192.0.2.2")
}

func TestRefillsAreSorted(t *testing.T) {
	require.Equal(t, fitlimit(t, readme, "-refill", "1", "-refill", "2"), fitlimit(t, readme, "-refill", "2", "-refill", "1", "-refill", "2"))
}

// A key comes from the network: its control characters do not reach the terminal.
func TestKeysCannotSteerTheTerminal(t *testing.T) {
	log := `{"ts":1,"k":"a\u001b[2J\tb"}` + "\n" + `{"ts":1,"k":"a\u001b[2J\tb"}` + "\n\x1b[2J\n"
	for _, try := range []string{"-keys=1", "-try=1,1"} {
		out := fitlimit(t, log, "-format", "json", "-time", "ts", "-key", "k", try)
		require.NotContains(t, out, "\x1b")
		require.Contains(t, out, `"a\x1b[2J\tb"`)
	}
}

// More than 2^42 tokens at the least refill: the refills are chosen above it.
func TestRefillsOfVeryLargeCosts(t *testing.T) {
	log := strings.Replace(readme, "200 1\n", "200 4000000000000\n", 2)
	require.Contains(t, fitlimit(t, strings.Replace(log, ":12:00:00", ":11:00:00", 1), "-key", "none", "-cost", "bytes"), "4000000000002  4000000000002")
}

// The table is printed even if the picture cannot be written.
func TestTableWithoutPicture(t *testing.T) {
	var out bytes.Buffer
	err := run([]string{"-picture", t.TempDir() + "/none/fit.html"}, strings.NewReader(readme), &out, io.Discard)
	require.ErrorContains(t, err, "choose another file with -picture")
	require.Contains(t, out.String(), "The least capacity")
}

func TestFreeRequestsNeedNoCapacity(t *testing.T) {
	err := run([]string{"-picture", "", "-cost", "bytes"}, strings.NewReader(strings.ReplaceAll(readme, "200 1\n", "200 -\n")), io.Discard, io.Discard)
	require.ErrorContains(t, err, "no arrivals that cost anything")
}
