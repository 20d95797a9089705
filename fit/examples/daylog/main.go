// Command daylog generates the access log of a day, in the Combined Log Format. Its
// bursts are known. 200 people open pages of seven requests. A crawler sends one request
// a second for an hour. At each full hour a batch job sends 60 requests at once.
package main

import (
	"bufio"
	"cmp"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"time"
)

func main() {
	people := flag.Int("people", 200, "how many people open pages")
	flag.Parse()
	w := bufio.NewWriter(os.Stdout)
	defer w.Flush()
	write(w, *people)
}

// request is a line of the log.
type request struct {
	at      time.Duration // since midnight
	address string
	path    string
}

// write writes the log, the same one at each call.
func write(w io.Writer, people int) {
	requests := slices.Concat(visits(people), crawl(), batches())
	slices.SortStableFunc(requests, func(a, b request) int { return cmp.Compare(a.at, b.at) })
	midnight := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	for _, r := range requests {
		fmt.Fprintf(w, "%s - - [%s] \"GET %s HTTP/1.1\" 200 1024 \"-\" \"-\"\n",
			r.address, midnight.Add(r.at).Format("02/Jan/2006:15:04:05 -0700"), r.path)
	}
}

// visits returns the pages that people open: one request, and six more within a second.
func visits(people int) (requests []request) {
	random := rand.New(rand.NewPCG(1, 2))
	for person := range people {
		address := fmt.Sprintf("192.0.2.%d", person%250+1)
		at := time.Duration(random.Int64N(int64(20 * time.Hour)))
		for page := range 1 + random.IntN(30) {
			requests = append(requests, request{at, address, fmt.Sprint("/page/", page)})
			for file := range 6 {
				requests = append(requests, request{at + time.Duration(random.Int64N(int64(time.Second))), address, fmt.Sprint("/file/", file)})
			}
			at += time.Duration(5+random.ExpFloat64()*40) * time.Second
		}
	}
	return requests
}

func crawl() (requests []request) {
	for second := range 3600 {
		requests = append(requests, request{3*time.Hour + time.Duration(second)*time.Second, "198.51.100.7", fmt.Sprint("/page/", second)})
	}
	return requests
}

func batches() (requests []request) {
	for hour := range 24 {
		for i := range 60 {
			requests = append(requests, request{time.Duration(hour) * time.Hour, "203.0.113.9", fmt.Sprint("/api/", i)})
		}
	}
	return requests
}
