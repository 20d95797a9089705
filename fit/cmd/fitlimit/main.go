// Command fitlimit reads access logs and finds limits that would have let their requests
// pass. Without -try it prints the capacity that a bucket for each client needs, for
// each refill, and draws it. With -try it prints what candidate limits would have refused.
//
//	fitlimit access.log
//	fitlimit -try 10,0.5 -try 30,1 access.log
//	fitlimit -format json -time ts -key user -cost bytes requests.jsonl
//
// It reads the Common and Combined Log Format, Caddy's JSON, lines of JSON, and CSV,
// compressed by gzip or not. Several files are merged by time. Without a file, or for -, it
// reads its standard input.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/fit/internal/accesslog"
)

func main() {
	switch err := run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr); {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "fitlimit:", err)
		os.Exit(1)
	}
}

// config holds the settings of the command line.
type config struct {
	log     accesslog.Options
	window  time.Duration
	refills numbers
	least   float64
	shares  numbers
	tries   limits
	keys    int
	picture string
	json    bool
	files   []string
}

func run(args []string, in io.Reader, out, progress io.Writer) error {
	c, err := parse(args, progress)
	if err != nil {
		return err
	}
	inputs, err := open(c, in, progress)
	if err != nil {
		return err
	}
	defer inputs.close()
	f, err := fitLog(c, inputs.log)
	inputs.finish()
	if err != nil {
		return err
	}
	if c.json {
		err = f.printJSON(out)
	} else {
		err = f.print(out)
	}
	if err != nil || c.picture == "" {
		return err
	}
	if err := draw(c.picture, f); err != nil {
		return fmt.Errorf("%w: choose another file with -picture, or none with -picture ''", err)
	}
	if !c.json {
		fmt.Fprintf(out, "\nThe picture is in %s.\n", c.picture)
	}
	return nil
}

func parse(args []string, out io.Writer) (*config, error) {
	c := &config{}
	var prices list
	flags := flag.NewFlagSet("fitlimit", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.Usage = func() {
		fmt.Fprint(out, "usage: fitlimit [flags] [file ...]\n\nFinds the limits that would have let the requests of access logs pass.\n\n")
		flags.PrintDefaults()
	}
	flags.StringVar((*string)(&c.log.Format), "format", "auto", "form of the logs: auto, clf, caddy, json or csv")
	flags.StringVar(&c.log.Time, "time", "", "`field` of the time in JSON or CSV")
	flags.StringVar(&c.log.Key, "key", "", "`field` of the key, or address, or none for one bucket for all requests (default: the client's address)")
	flags.StringVar(&c.log.Cost, "cost", "", "`field` of the cost (default: each request costs 1)")
	flags.Var(&prices, "price", "cost of a `pattern` of http.ServeMux, such as 'GET /export=5'; may be repeated")
	flags.DurationVar(&c.window, "window", time.Minute, "how far out of order lines may be")
	flags.Var(&c.refills, "refill", "refill in tokens per second; may be repeated (default: twenty, from the log)")
	flags.Float64Var(&c.least, "least", 1.0/60, "least refill to look at if -refill is not given, in tokens per second")
	flags.Var(&c.shares, "refused", "share of requests that may be refused, from 0 to below 1; may be repeated (default: 0, 0.001 and 0.01)")
	flags.Var(&c.tries, "try", "`capacity,refill` of a limit to try; may be repeated")
	flags.IntVar(&c.keys, "keys", 20, "how many keys to list")
	flags.StringVar(&c.picture, "picture", "fitlimit.html", "`file` to draw to; empty for none")
	flags.BoolVar(&c.json, "json", false, "print JSON, for programs")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	c.files = flags.Args()
	if len(prices) > 0 {
		p, err := accesslog.ParsePrices(prices)
		if err != nil {
			return nil, err
		}
		c.log.Prices = p
	}
	return c, c.complete()
}

// complete checks the values and fills in defaults. The least refill is at most that of any
// -refill.
func (c *config) complete() error {
	if len(c.shares) == 0 {
		c.shares = numbers{0, 0.001, 0.01}
	}
	for _, share := range c.shares {
		if !(share >= 0 && share < 1) {
			return fmt.Errorf("-refused %v: choose a share from 0 to below 1", share)
		}
	}
	for _, refill := range c.refills {
		if err := (tokenbucket.Limit{Capacity: 1, RefillPerSec: refill}).Validate(); err != nil {
			return fmt.Errorf("-refill: %w", err)
		}
		c.least = min(c.least, refill)
	}
	slices.Sort(c.refills)
	c.refills = slices.Compact(c.refills)
	if !(c.least >= 0 && c.least <= 1e12) {
		return fmt.Errorf("-least %v: choose 0 to 1e12 tokens per second", c.least)
	}
	if c.keys < 0 {
		return fmt.Errorf("-keys %d: choose 0 or more", c.keys)
	}
	if len(c.files) == 0 {
		c.files = []string{"-"}
	}
	return nil
}

// list is a flag that may be given several times.
type list []string

func (l *list) String() string { return strings.Join(*l, " ") }
func (l *list) Set(value string) error {
	*l = append(*l, value)
	return nil
}

// numbers is a flag with a number. It may be given several times.
type numbers []float64

func (n *numbers) String() string { return fmt.Sprint([]float64(*n)) }
func (n *numbers) Set(value string) error {
	x, err := strconv.ParseFloat(value, 64)
	if err != nil {
		return errors.New("write a number")
	}
	*n = append(*n, x)
	return nil
}

// limits is a flag with a limit. It may be given several times.
type limits []tokenbucket.Limit

func (l *limits) String() string { return fmt.Sprint([]tokenbucket.Limit(*l)) }
func (l *limits) Set(value string) error {
	capacity, refill, ok := strings.Cut(value, ",")
	c, err1 := strconv.ParseFloat(capacity, 64)
	r, err2 := strconv.ParseFloat(refill, 64)
	if !ok || err1 != nil || err2 != nil {
		return errors.New("write a capacity and a refill per second, such as 10,0.5")
	}
	limit := tokenbucket.Limit{Capacity: c, RefillPerSec: r}
	*l = append(*l, limit)
	return limit.Validate()
}
