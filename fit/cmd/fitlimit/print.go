package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/fit/internal/accesslog"
)

// printJSON prints everything, for programs. Waits are in nanoseconds.
func (f *fitting) printJSON(out io.Writer) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(f)
}

func (f *fitting) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, f.summary())
	for _, warning := range f.warnings() {
		fmt.Fprintln(w, warning)
	}
	if len(f.Tries) > 0 {
		f.printTries(w)
	} else {
		f.printTable(w)
	}
	return w.Flush()
}

func (f *fitting) summary() string {
	who := "in one bucket"
	if f.perKey {
		who = fmt.Sprintf("of %d keys, each with a bucket of its own", f.Keys)
	}
	return fmt.Sprintf("%d requests %s, from %s to %s.", f.Requests, who, f.From.Format(time.RFC3339), f.To.Format(time.RFC3339))
}

func (f *fitting) warnings() (warnings []string) {
	if f.Broken > 0 {
		warnings = append(warnings, fmt.Sprintf("%d lines could not be read; the first is %s", f.Broken, f.FirstBroken))
	}
	if f.Late > 0 {
		warnings = append(warnings, fmt.Sprintf("%d lines were further out of order than -window; they count as later than they were. Sort the log, or raise -window.", f.Late))
	}
	if f.WholeSeconds {
		warnings = append(warnings, "The times are whole seconds, so a capacity may be wrong by up to the refill of one second, shown as ±.")
	}
	return warnings
}

func (f *fitting) printTable(w io.Writer) {
	fmt.Fprint(w, "\nThe least capacity, in tokens:\n\nrefill/s\t")
	for _, share := range f.Shares {
		fmt.Fprint(w, shareName(share), "\t")
	}
	if f.WholeSeconds {
		fmt.Fprint(w, "±\t")
	}
	fmt.Fprintln(w)
	for _, r := range f.Rows {
		fmt.Fprint(w, number(r.Refill), "\t")
		for _, capacity := range r.Capacities {
			fmt.Fprint(w, number(capacity), "\t")
		}
		if f.WholeSeconds {
			fmt.Fprint(w, number(r.Band), "\t")
		}
		fmt.Fprintln(w)
	}
	if f.perKey && len(f.Neediest) > 0 {
		fmt.Fprintf(w, "\nA smaller capacity refuses these first, at %s tokens per second:\n\ncapacity\t  key\n", number(f.Neediest[0].Refill))
		for _, n := range f.Neediest {
			fmt.Fprintf(w, "%s\t  %s\n", number(n.Capacity), accesslog.Printable(n.Key))
		}
	}
	fmt.Fprintf(w, "\nIn Go, with the least refill that is large enough (more refill saves little capacity):\n\n%s\n", f.code())
}

func (f *fitting) printTries(w io.Writer) {
	fmt.Fprint(w, "\ncapacity\trefill/s\trefused\tshare\tkeys\tmedian wait\tlongest wait\t\n")
	for _, t := range f.Tries {
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%d\t%s\t%s\t\n", number(t.Limit.Capacity), number(t.Limit.RefillPerSec),
			t.Refused, percent(t.Share), t.RefusedKeys, waitName(t.MedianWait), waitName(t.LongestWait))
	}
	for _, t := range f.Tries {
		if t.First == nil {
			continue
		}
		fmt.Fprintf(w, "\n%s,%s refused first: %s at %s, a cost of %s.\n", number(t.Limit.Capacity), number(t.Limit.RefillPerSec),
			keyName(t.First.Key), t.First.At.Format(time.RFC3339Nano), number(t.First.Cost))
		if f.perKey && len(t.MostRefused) > 0 {
			fmt.Fprint(w, "\nrefused\tof\t  key\n")
			for _, k := range t.MostRefused {
				fmt.Fprintf(w, "%d\t%d\t  %s\n", k.Refused, k.Requests, accesslog.Printable(k.Key))
			}
		}
	}
}

// code returns lines of Go for the chosen row, with the band added.
func (f *fitting) code() string {
	r := f.chosen()
	limit := fmt.Sprintf("tokenbucket.Limit{Capacity: %s, RefillPerSec: %v}", number(math.Ceil(r.Capacities[0]+r.Band)), r.Refill)
	if f.perKey {
		return "clients, err := keyed.New[string](" + limit + ")"
	}
	return "bucket := tokenbucket.MustNew(" + limit + ")"
}

func keyName(key string) string {
	if key == "" {
		return "a request"
	}
	return accesslog.Printable(key)
}

func shareName(share float64) string {
	if share == 0 {
		return "none refused"
	}
	return percent(share) + " refused"
}

func percent(share float64) string { return strconv.FormatFloat(share*100, 'g', 3, 64) + " %" }

// number returns a number with up to six digits, or with all of them where six would need an
// exponent.
func number(x float64) string {
	text := strconv.FormatFloat(x, 'g', 6, 64)
	if strings.Contains(text, "e") {
		text = strconv.FormatFloat(x, 'f', -1, 64)
	}
	return text
}

func waitName(wait time.Duration) string {
	if wait == tokenbucket.Never {
		return "never"
	}
	return wait.Round(time.Millisecond).String()
}
