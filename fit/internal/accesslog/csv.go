package accesslog

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"
)

// csvSource is a log in CSV, whose first row names the columns.
type csvSource struct {
	reader                          *csv.Reader
	time, key, cost, method, target int // columns, or -1
	keys                            keyMaker
	prices                          *Prices
}

func newCSV(r io.Reader, o Options) (source, error) {
	s := &csvSource{reader: csv.NewReader(r), prices: o.Prices, keys: keyMaker{isAddress: o.Key == "" || o.Key == "address"}}
	s.reader.ReuseRecord = true
	header, err := s.reader.Read()
	if err != nil {
		return nil, fmt.Errorf("the header of the columns: %w", err)
	}
	column := func(names ...string) int {
		for _, name := range names {
			if i := slices.Index(header, name); i >= 0 {
				return i
			}
		}
		return -1
	}
	s.time, s.key, s.cost = column(defaultTo(o.Time, "time")), -1, -1
	if o.Key != None {
		s.key = column(defaultTo(o.Key, "address"))
	}
	if o.Cost != "" { // a column may have no name
		s.cost = column(o.Cost)
	}
	s.method, s.target = column("method"), column("path")
	switch {
	case s.time < 0:
		return nil, fmt.Errorf("no column %q in %q: name the time with -time", defaultTo(o.Time, "time"), header)
	case s.key < 0 && o.Key != None:
		return nil, fmt.Errorf("no column %q in %q: name the key with -key, or -key none", defaultTo(o.Key, "address"), header)
	case o.Cost != "" && s.cost < 0:
		return nil, fmt.Errorf("no column %q in %q: name the cost with -cost", o.Cost, header)
	case o.Prices != nil && (s.method < 0 || s.target < 0):
		return nil, fmt.Errorf("prices need the columns method and path, not %q", header)
	}
	return s, nil
}

func defaultTo(name, byDefault string) string {
	if name == "" {
		return byDefault
	}
	return name
}

func (s *csvSource) Next() (record Record, err error) {
	row, err := s.reader.Read()
	var broken *csv.ParseError
	switch {
	case errors.As(err, &broken):
		return record, &brokenLine{broken.StartLine, fmt.Sprintf("%q", row), broken.Err}
	case err != nil:
		return record, err
	}
	line, _ := s.reader.FieldPos(0) // after an error there may be no fields, and FieldPos would panic
	if record.At, err = parseTime(row[s.time]); err != nil {
		return record, &brokenLine{line, fmt.Sprintf("%q", row), err}
	}
	if s.key >= 0 {
		record.Key = s.keys.make([]byte(row[s.key]))
	}
	switch {
	case s.prices != nil:
		record.Cost = s.prices.of(row[s.method], row[s.target])
	case s.cost < 0:
		record.Cost = 1
	default:
		if record.Cost, err = parseCost(row[s.cost]); err != nil {
			return record, &brokenLine{line, fmt.Sprintf("%q", row), err}
		}
	}
	return record, nil
}

// timeLayouts are the forms of a time in JSON and CSV, besides numbers.
var timeLayouts = []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999-0700", "2006-01-02 15:04:05.999999999-07:00", "2006-01-02 15:04:05.999999999 -0700", clfTime}

// parseTime reads a time in one of these forms, or a number that unixTime reads.
func parseTime(text string) (time.Time, error) {
	for _, layout := range timeLayouts {
		if at, err := time.Parse(layout, text); err == nil {
			return at, nil
		}
	}
	if n, err := strconv.ParseFloat(text, 64); err == nil {
		return unixTime(n)
	}
	return time.Time{}, fmt.Errorf("its time %q is neither like 2006-01-02T15:04:05Z nor a number of seconds since 1970", text)
}
