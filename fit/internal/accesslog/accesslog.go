// Package accesslog reads requests from access logs: the Common and Combined Log Format of
// nginx and Apache, Caddy's JSON, lines of JSON, and CSV; compressed by gzip or not.
package accesslog

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
	"unicode/utf8"
)

// Record is one request.
type Record struct {
	At   time.Time
	Key  string
	Cost float64 // tokens
}

// Format is the form of a log.
type Format string

// The formats. Auto looks at the first line.
const (
	Auto  Format = "auto"
	CLF   Format = "clf" // Common and Combined
	Caddy Format = "caddy"
	JSON  Format = "json"
	CSV   Format = "csv"
)

// Options say how to read a log.
type Options struct {
	Format Format // by default, Auto

	// Time, Key and Cost name fields. In JSON they are paths, as in "request.remote_ip".
	// In CLF they are address, ident, user, time, request, status, bytes, referer and agent;
	// a key may also be method or path.
	Time string // by default, the field of the format
	Key  string // None for one bucket for all requests; by default, the client's address. JSON has no default
	Cost string // by default, each request costs 1, or its price

	Prices *Prices // by method and path; nil for none
}

// None as a key puts all requests into one bucket.
const None = "none"

// validate checks the options and sets the default format.
func (o *Options) validate() error {
	switch o.Format {
	case "":
		o.Format = Auto
	case Auto, CLF, Caddy, JSON, CSV:
	default:
		return fmt.Errorf("format %q: choose auto, clf, caddy, json or csv", o.Format)
	}
	if o.Cost != "" && o.Prices != nil {
		return errors.New("costs by field and by price: choose one of the two")
	}
	return nil
}

// source yields the records of one log. Next returns io.EOF at the end, and a brokenLine for
// a line that it cannot read; it can be called again after that.
type source interface {
	Next() (Record, error)
}

// brokenLine is an error that concerns one line.
type brokenLine struct {
	number int
	text   string
	reason error
}

func (e *brokenLine) Error() string {
	text := e.text
	if len(text) > 200 {
		text = text[:200] + "..."
	}
	return fmt.Sprintf("line %d: %v: %s", e.number, e.reason, Printable(text))
}

// Printable returns text from a log in a form that is safe to print. If the text has
// characters that are not printable, which could control a terminal, it is in quotes and
// has escapes.
func Printable(text string) string {
	for _, r := range text {
		if !strconv.IsPrint(r) || r == utf8.RuneError {
			return strconv.Quote(text)
		}
	}
	return text
}

// newSource returns the source of a log in the given form.
func newSource(r io.Reader, o Options) (source, error) {
	lines := newLines(r)
	lines.skipBlanks()
	format := o.Format
	if format == Auto {
		first, err := lines.peek()
		if err == io.EOF {
			return lines, nil
		}
		if err != nil {
			return nil, err
		}
		if format, err = detect(first); err != nil {
			return nil, err
		}
	}
	switch format {
	case CSV:
		return newCSV(lines.reader, o)
	case Caddy:
		lines.parse = newJSONParser(caddyFields(o)).parse
	case JSON:
		if o.Time == "" {
			return nil, errors.New("lines of JSON: name the field of the time with -time")
		}
		if o.Key == "" {
			return nil, errors.New("lines of JSON: name the field of the key with -key, or pass -key none for one bucket for all requests")
		}
		lines.parse = newJSONParser(jsonFields(o)).parse
	default:
		parser, err := newCLFParser(o)
		if err != nil {
			return nil, err
		}
		lines.parse = parser.parse
	}
	return lines, nil
}
