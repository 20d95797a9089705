package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// clfTime is the time of the Common Log Format, without its brackets.
const clfTime = "02/Jan/2006:15:04:05 -0700"

// The fields of a line in the Combined Log Format. The Common one lacks the last two.
const (
	clfAddress = iota
	clfIdent
	clfUser
	clfInstant
	clfRequest
	clfStatus
	clfBytes
	clfReferer
	clfAgent
	clfFields
)

var clfNames = []string{"address", "ident", "user", "time", "request", "status", "bytes", "referer", "agent"}

// clfParser reads lines such as
//
//	192.0.2.1 - alice [10/Oct/2000:13:55:36 -0700] "GET /export HTTP/1.0" 200 2326 "-" "curl/8.0"
type clfParser struct {
	keyOf  func(fields *[clfFields][]byte) ([]byte, error)
	key    keyMaker
	cost   int // a field, or -1
	prices *Prices
	clock  memory
}

func newCLFParser(o Options) (*clfParser, error) {
	p := &clfParser{cost: -1, prices: o.Prices, key: keyMaker{}}
	if o.Time != "" && o.Time != "time" {
		return nil, fmt.Errorf("this format has its time in one place, not in a field %q: leave -time out", o.Time)
	}
	if o.Cost != "" {
		if p.cost = slices.Index(clfNames, o.Cost); p.cost < 0 {
			return nil, fmt.Errorf("no field %q: this format has %v", o.Cost, clfNames)
		}
	}
	switch o.Key {
	case None:
		p.keyOf = func(*[clfFields][]byte) ([]byte, error) { return nil, nil }
	case "", "address":
		p.key.isAddress = true
		p.keyOf = func(fields *[clfFields][]byte) ([]byte, error) { return fields[clfAddress], nil }
	case "method", "path":
		p.keyOf = func(fields *[clfFields][]byte) ([]byte, error) {
			method, target := splitRequest(fields[clfRequest])
			if o.Key == "method" {
				return method, nil
			}
			path, _, _ := bytes.Cut(target, []byte("?"))
			return path, nil
		}
	default:
		i := slices.Index(clfNames, o.Key)
		if i < 0 {
			return nil, fmt.Errorf("no field %q: this format has %v, method and path", o.Key, clfNames)
		}
		p.keyOf = func(fields *[clfFields][]byte) ([]byte, error) {
			if fields[i] == nil {
				return nil, fmt.Errorf("it has no field %q", o.Key)
			}
			return fields[i], nil
		}
	}
	return p, nil
}

func (p *clfParser) parse(line []byte) (record Record, err error) {
	var fields [clfFields][]byte
	if err := splitCLF(line, &fields); err != nil {
		return record, err
	}
	if record.At, err = p.clock.parse(clfTime, fields[clfInstant]); err != nil {
		return record, err
	}
	key, err := p.keyOf(&fields)
	if err != nil {
		return record, err
	}
	record.Key = p.key.make(key)
	record.Cost, err = p.costOf(&fields)
	return record, err
}

func (p *clfParser) costOf(fields *[clfFields][]byte) (float64, error) {
	switch {
	case p.prices != nil:
		method, target := splitRequest(fields[clfRequest])
		return p.prices.of(string(method), string(target)), nil
	case p.cost < 0:
		return 1, nil
	case len(fields[p.cost]) == 1 && fields[p.cost][0] == '-':
		return 0, nil // no bytes were sent
	default:
		return parseCost(string(fields[p.cost]))
	}
}

var errCLF = errors.New(`it is not of the form: address ident user [time] "request" status bytes`)

// splitCLF sets the fields of a line. Those that the line lacks stay nil.
func splitCLF(line []byte, fields *[clfFields][]byte) error {
	for i := range fields {
		field, rest, ok := cutField(line)
		if !ok {
			return errCLF
		}
		fields[i], line = field, bytes.TrimLeft(rest, " ")
		if len(line) == 0 {
			if i < clfRequest {
				return errCLF
			}
			return nil
		}
	}
	return nil
}

// cutField cuts the first field off. It ends at a space, or is in brackets or in quotes.
// In quotes, a backslash stands before each quote that is part of the field.
func cutField(line []byte) (field, rest []byte, ok bool) {
	end := byte(' ')
	switch {
	case len(line) == 0:
		return nil, nil, false
	case line[0] == '[':
		end, line = ']', line[1:]
	case line[0] == '"':
		end, line = '"', line[1:]
	}
	from := 0
	for {
		i := bytes.IndexByte(line[from:], end)
		switch i += from; {
		case i < from && end == ' ':
			return line, nil, true
		case i < from:
			return nil, nil, false
		case end == '"' && isEscaped(line[:i]):
			from = i + 1
		default:
			return line[:i], line[i+1:], true
		}
	}
}

// isEscaped reports whether before ends with an odd number of backslashes.
func isEscaped(before []byte) bool {
	return (len(before)-len(bytes.TrimRight(before, `\`)))%2 == 1
}

// splitRequest returns the method and the target of a request line.
func splitRequest(request []byte) (method, target []byte) {
	method, rest, _ := bytes.Cut(request, []byte(" "))
	target, _, _ = bytes.Cut(rest, []byte(" "))
	return method, target
}

// memory parses times, and remembers the last one: most lines have the time of the line
// before.
type memory struct {
	text string
	at   time.Time
}

func (m *memory) parse(layout string, text []byte) (time.Time, error) {
	if m.text == string(text) && m.text != "" {
		return m.at, nil
	}
	at, err := time.Parse(layout, string(text))
	if err != nil {
		return at, fmt.Errorf("its time %q is not of the form %q", text, layout)
	}
	m.text, m.at = string(text), at
	return at, nil
}

func parseCost(text string) (float64, error) {
	cost, err := strconv.ParseFloat(text, 64)
	if err != nil || !(cost >= 0 && cost <= 1<<42) {
		return 0, fmt.Errorf("its cost %q is not a number of tokens from 0 to 2^42", text)
	}
	return cost, nil
}
