package accesslog

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/tidwall/gjson"
)

// fields are paths into a line of JSON.
type fields struct {
	time, key, cost, method, target string
	keyIsAddress                    bool
	prices                          *Prices
}

func caddyFields(o Options) fields {
	f := jsonFields(o)
	f.method, f.target = "request.method", "request.uri"
	if f.time == "" {
		f.time = "ts"
	}
	if f.key == "" || f.key == "address" {
		f.key, f.keyIsAddress = "request.remote_ip", true
	}
	return f
}

func jsonFields(o Options) fields {
	f := fields{time: o.Time, key: o.Key, cost: o.Cost, method: "method", target: "path", prices: o.Prices}
	if f.key == "address" {
		f.keyIsAddress = true
	}
	return f
}

// jsonParser reads lines of JSON.
type jsonParser struct {
	fields fields
	key    keyMaker
}

func newJSONParser(f fields) *jsonParser {
	return &jsonParser{f, keyMaker{isAddress: f.keyIsAddress}}
}

func (p *jsonParser) parse(line []byte) (record Record, err error) {
	if !gjson.ValidBytes(line) {
		return record, errors.New("it is not JSON")
	}
	values := gjson.GetManyBytes(line, orNone(p.fields.time), orNone(p.fields.key), orNone(p.fields.cost), p.fields.method, p.fields.target)
	if record.At, err = jsonTime(values[0]); err != nil {
		return record, fmt.Errorf("its field %q: %w", p.fields.time, err)
	}
	if p.fields.key != None && p.fields.key != "" {
		if !values[1].Exists() {
			return record, fmt.Errorf("it has no field %q", p.fields.key)
		}
		record.Key = p.key.make([]byte(values[1].String()))
	}
	switch {
	case p.fields.prices != nil:
		record.Cost = p.fields.prices.of(values[3].String(), values[4].String())
	case p.fields.cost == "":
		record.Cost = 1
	default:
		if record.Cost, err = parseCost(values[2].String()); err != nil {
			return record, err
		}
	}
	return record, nil
}

// orNone returns the path or, if it is empty, a path that no line has.
func orNone(path string) string {
	if path == "" {
		return "\x00"
	}
	return path
}

func jsonTime(value gjson.Result) (time.Time, error) {
	switch value.Type {
	case gjson.Number:
		return unixTime(value.Num)
	case gjson.String:
		return parseTime(value.Str)
	default:
		return time.Time{}, errors.New("there is no time")
	}
}

// unixTime returns the time of a number of seconds since 1970. A number that would be
// after the year 5138 counts milliseconds, microseconds or nanoseconds.
func unixTime(n float64) (time.Time, error) {
	if !(n >= 0 && n < 1e20) {
		return time.Time{}, fmt.Errorf("%v is not a time since 1970 in seconds, milliseconds, microseconds or nanoseconds", n)
	}
	for n >= 1e11 {
		n /= 1000
	}
	seconds, fraction := math.Modf(n)
	return time.Unix(int64(seconds), int64(math.Round(fraction*1e9))), nil
}
