package accesslog

import (
	"bufio"
	"container/heap"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"time"

	"github.com/klauspost/compress/gzip"
)

// Log reads several logs as one, in the order of time.
type Log struct {
	Lines       int    // records read
	Broken      int    // lines that could not be read
	FirstBroken string // the first of them, and why
	Late        int    // records earlier than the window allows; each counts at the instant of the one before it

	inputs inputs
	last   time.Time
}

// input is one log, sorted within a window.
type input struct {
	name    string
	number  int // the order in which the logs were given
	source  source
	window  time.Duration
	waiting records // read, not yet returned
	newest  time.Time
	isRead  bool
	isFine  bool // a time was not a whole second
}

// Open returns a Log that reads several readers. Their names appear in messages. Lines
// are written when a request ends, so records may come out of order by up to the window.
func Open(names []string, readers []io.Reader, o Options, window time.Duration) (*Log, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if window < 0 {
		return nil, fmt.Errorf("window %v: choose 0 or more", window)
	}
	l := &Log{}
	for i, r := range readers {
		plain, err := unzip(r)
		if err == nil {
			var s source
			if s, err = newSource(plain, o); err == nil {
				l.inputs = append(l.inputs, &input{name: names[i], number: i, source: s, window: window})
			}
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", names[i], err)
		}
	}
	for _, in := range l.inputs {
		if err := l.fill(in); err != nil {
			return nil, err
		}
	}
	heap.Init(&l.inputs)
	return l, nil
}

// unzip returns the content of r, decompressed if it is compressed by gzip.
func unzip(r io.Reader) (io.Reader, error) {
	buffered := bufio.NewReader(r)
	if magic, _ := buffered.Peek(2); string(magic) == "\x1f\x8b" {
		return gzip.NewReader(buffered)
	}
	return buffered, nil
}

// HasWholeSeconds reports whether any of the logs has only times in whole seconds. Call
// it after Next has returned io.EOF.
func (l *Log) HasWholeSeconds() bool {
	return slices.ContainsFunc(l.inputs, func(in *input) bool { return !in.newest.IsZero() && !in.isFine })
}

// Next returns the next record, and io.EOF at the end.
func (l *Log) Next() (Record, error) {
	if len(l.inputs) == 0 || len(l.inputs[0].waiting) == 0 {
		return Record{}, io.EOF
	}
	in := l.inputs[0]
	record := in.waiting.pop()
	if err := l.fill(in); err != nil {
		return Record{}, err
	}
	heap.Fix(&l.inputs, 0)
	if record.At.Before(l.last) {
		l.Late++
		record.At = l.last
	}
	l.last = record.At
	return record, nil
}

// fill reads until the oldest record that waits is older than the window.
func (l *Log) fill(in *input) error {
	for !in.isRead && (len(in.waiting) == 0 || in.newest.Sub(in.waiting[0].At) <= in.window) {
		record, err := in.source.Next()
		var broken *brokenLine
		switch {
		case err == io.EOF:
			in.isRead = true
		case errors.As(err, &broken):
			if l.Broken++; l.Broken == 1 {
				l.FirstBroken = in.name + ": " + broken.Error()
			}
		case err != nil:
			return fmt.Errorf("%s: %w", in.name, err)
		default:
			l.Lines++
			in.isFine = in.isFine || record.At.Nanosecond() != 0
			if record.At.After(in.newest) {
				in.newest = record.At
			}
			in.waiting.insert(record)
		}
	}
	return nil
}

// records are in the order of time. Records with equal times are in the order of the log.
type records []Record

func (r *records) insert(record Record) {
	i := len(*r)
	if i > 0 && record.At.Before((*r)[i-1].At) {
		i = sort.Search(i, func(i int) bool { return (*r)[i].At.After(record.At) })
	}
	*r = slices.Insert(*r, i, record)
}

func (r *records) pop() Record {
	first := (*r)[0]
	*r = (*r)[1:]
	return first
}

// inputs is a heap, the one with the oldest record first, those without one last.
type inputs []*input

func (in inputs) Len() int { return len(in) }
func (in inputs) Less(i, j int) bool {
	if len(in[i].waiting) == 0 || len(in[j].waiting) == 0 {
		return len(in[i].waiting) > 0
	}
	a, b := in[i], in[j]
	if order := a.waiting[0].At.Compare(b.waiting[0].At); order != 0 {
		return order < 0
	}
	return a.number < b.number
}
func (in inputs) Swap(i, j int) { in[i], in[j] = in[j], in[i] }
func (in *inputs) Push(x any)   { *in = append(*in, x.(*input)) }
func (in *inputs) Pop() any {
	last := (*in)[len(*in)-1]
	*in = (*in)[:len(*in)-1]
	return last
}
