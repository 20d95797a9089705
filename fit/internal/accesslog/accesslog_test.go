package accesslog_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/aa014e13/tokenbucket/fit/internal/accesslog"
	"github.com/stretchr/testify/require"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// readAll reads logs to their end.
func readAll(t *testing.T, o accesslog.Options, window time.Duration, logs ...string) ([]accesslog.Record, *accesslog.Log) {
	var names []string
	var readers []io.Reader
	for i, log := range logs {
		names, readers = append(names, string(rune('a'+i))), append(readers, strings.NewReader(log))
	}
	log, err := accesslog.Open(names, readers, o, window)
	require.NoError(t, err)
	var records []accesslog.Record
	for {
		record, err := log.Next()
		if err == io.EOF {
			return records, log
		}
		require.NoError(t, err)
		record.At = record.At.UTC()
		records = append(records, record)
	}
}

func TestFormats(t *testing.T) {
	for _, row := range []struct {
		name    string
		log     string
		options accesslog.Options
		want    accesslog.Record
	}{
		{"common", `192.0.2.1 - alice [30/Nov/2026:14:00:00 +0200] "GET /export?x=1 HTTP/1.1" 200 2326`, accesslog.Options{},
			accesslog.Record{At: noon, Key: "192.0.2.1", Cost: 1}},
		{"combined", `2001:db8::9 - - [30/Nov/2026:12:00:00 +0000] "GET / HTTP/1.1" 200 5 "-" "a \"quoted\" agent"`, accesslog.Options{},
			accesslog.Record{At: noon, Key: "2001:db8::/64", Cost: 1}},
		{"a name for an address", `piweba3y.prodigy.com - - [30/Nov/2026:12:00:00 +0000] "GET /x" 200 -`, accesslog.Options{Cost: "bytes"},
			accesslog.Record{At: noon, Key: "piweba3y.prodigy.com", Cost: 0}},
		{"by user and bytes", `192.0.2.1 - alice [30/Nov/2026:12:00:00 +0000] "GET / HTTP/1.1" 200 2326`, accesslog.Options{Key: "user", Cost: "bytes"},
			accesslog.Record{At: noon, Key: "alice", Cost: 2326}},
		{"by path", `192.0.2.1 - - [30/Nov/2026:12:00:00 +0000] "GET /a?b HTTP/1.1" 200 1`, accesslog.Options{Key: "path"},
			accesslog.Record{At: noon, Key: "/a", Cost: 1}},
		{"in one bucket", `192.0.2.1 - - [30/Nov/2026:12:00:00 +0000] "GET /a HTTP/1.1" 200 1`, accesslog.Options{Key: accesslog.None},
			accesslog.Record{At: noon, Cost: 1}},
		{"caddy", `{"level":"info","ts":1796040000.25,"logger":"http.log.access","request":{"remote_ip":"::ffff:192.0.2.1","method":"GET","uri":"/"}}`, accesslog.Options{},
			accesslog.Record{At: noon.Add(250 * time.Millisecond), Key: "192.0.2.1", Cost: 1}},
		{"json", `{"at":"2026-11-30T14:00:00.5+02:00","user":{"id":7},"bytes":12}`, accesslog.Options{Time: "at", Key: "user.id", Cost: "bytes"},
			accesslog.Record{At: noon.Add(500 * time.Millisecond), Key: "7", Cost: 12}},
		{"json in milliseconds", `{"ts":1796040000250,"addr":"192.0.2.1"}`, accesslog.Options{Time: "ts", Key: accesslog.None},
			accesslog.Record{At: noon.Add(250 * time.Millisecond), Cost: 1}},
		{"csv", "time,address,bytes\n2026-11-30T12:00:00Z,[2001:db8::1]:443,9\n", accesslog.Options{Cost: "bytes"},
			accesslog.Record{At: noon, Key: "2001:db8::/64", Cost: 9}},
		{"csv with a column without a name", ",time,address\n41,2026-11-30T12:00:00Z,192.0.2.1\n", accesslog.Options{},
			accesslog.Record{At: noon, Key: "192.0.2.1", Cost: 1}},
		{"csv in one bucket, with a column named none", "none,time,address\n41,2026-11-30T12:00:00Z,192.0.2.1\n", accesslog.Options{Key: accesslog.None},
			accesslog.Record{At: noon, Cost: 1}},
	} {
		t.Run(row.name, func(t *testing.T) {
			records, log := readAll(t, row.options, 0, row.log)
			require.Empty(t, log.FirstBroken)
			require.Equal(t, []accesslog.Record{row.want}, records)
		})
	}
}

func line(clock, rest string) string {
	return `192.0.2.1 - - [30/Nov/2026:` + clock + `] ` + rest + "\n"
}

func TestZonesMerge(t *testing.T) {
	records, _ := readAll(t, accesslog.Options{Time: "t", Key: accesslog.None, Format: accesslog.JSON}, time.Minute,
		`{"t":"2026-11-30T14:00:01+02:00"}`+"\n"+`{"t":"2026-11-30T12:00:00Z"}`)
	require.Equal(t, noon, records[0].At)
	require.Equal(t, noon.Add(time.Second), records[1].At)
}

func TestFilesMergeByTime(t *testing.T) {
	records, log := readAll(t, accesslog.Options{Key: "path"}, 0,
		line("12:00:00 +0000", `"GET /1" 200 1`)+line("12:00:02 +0000", `"GET /3" 200 1`),
		line("12:00:01 +0000", `"GET /2" 200 1`)+line("12:00:02 +0000", `"GET /4" 200 1`))
	var paths []string
	for _, r := range records {
		paths = append(paths, r.Key)
	}
	require.Equal(t, []string{"/1", "/2", "/3", "/4"}, paths)
	require.True(t, log.HasWholeSeconds())
}

func TestLinesAreSortedWithinTheWindow(t *testing.T) {
	text := line("12:00:30 +0000", `"GET /2" 200 1`) + line("12:00:40 +0000", `"GET /3" 200 1`) + line("12:00:00 +0000", `"GET /1" 200 1`)
	records, log := readAll(t, accesslog.Options{Key: "path"}, time.Minute, text)
	require.Equal(t, "/1", records[0].Key)
	require.Zero(t, log.Late)
	records, log = readAll(t, accesslog.Options{Key: "path"}, time.Second, text)
	require.Equal(t, "/2", records[0].Key)
	require.Equal(t, records[0].At, records[1].At, "a late line counts as simultaneous")
	require.Equal(t, 1, log.Late)
}

func TestBrokenLinesAreCounted(t *testing.T) {
	for _, broken := range []string{
		"nonsense", `192.0.2.1 - - [yesterday] "GET /" 200 1`, `192.0.2.1 - - [30/Nov/2026:12:00:00 +0000 "GET /" 200 1`, "{", strings.Repeat("x", 1<<17),
	} {
		records, log := readAll(t, accesslog.Options{}, 0, line("12:00:00 +0000", `"GET /" 200 1`)+"\n"+broken+"\n"+line("12:00:01 +0000", `"GET /" 200 1`))
		require.Len(t, records, 2)
		require.Equal(t, 1, log.Broken)
		require.Contains(t, log.FirstBroken, "a: line 3: ")
		require.Less(t, len(log.FirstBroken), 400)
	}
}

func TestBrokenJSONAndCSV(t *testing.T) {
	for _, text := range []string{`{"ts":"x","key":1,"cost":1}`, `{"key":1,"cost":1}`, `{"ts":1,"cost":1}`, `{"ts":1,"key":1,"cost":-1}`, `{"ts":1,"key":1}`, `[`} {
		_, log := readAll(t, accesslog.Options{Format: accesslog.JSON, Time: "ts", Key: "key", Cost: "cost"}, 0, text)
		require.Equal(t, 1, log.Broken, text)
	}
	records, log := readAll(t, accesslog.Options{Format: accesslog.CSV}, 0, "time,address\na\"b,c\nx,192.0.2.1\n1,2,3\n1e30,x\n-1,x\n1796040000,192.0.2.1\n1,\"open\n1,x\n")
	require.Equal(t, 6, log.Broken)
	require.Contains(t, log.FirstBroken, "line 2: ")
	require.Len(t, records, 1)
}

func TestStartOfALog(t *testing.T) {
	for _, start := range []string{"\ufeff", "\n\n", "\r\n", "\ufeff\n"} {
		for _, text := range []string{"time,address\r\n1796040000,192.0.2.1\r\n", line("12:00:00 +0000", `"GET /" 200 1`) + "\r\n"} {
			records, log := readAll(t, accesslog.Options{}, 0, start+text)
			require.Empty(t, log.FirstBroken, "%q", start+text)
			require.Equal(t, []accesslog.Record{{At: noon, Key: "192.0.2.1", Cost: 1}}, records)
		}
	}
	_, log := readAll(t, accesslog.Options{}, 0, "\n\n"+line("12:00:00 +0000", `"GET /" 200 1`)+"x")
	require.Contains(t, log.FirstBroken, "a: line 4: ")
}

func TestVeryLongLines(t *testing.T) {
	long := line("12:00:00 +0000", `"GET /`+strings.Repeat("x", 1<<18)+`" 200 1`)
	tooLong := line("12:00:00 +0000", `"GET /`+strings.Repeat("x", 1<<21)+`" 200 1`)
	records, log := readAll(t, accesslog.Options{}, 0, long+tooLong+long)
	require.Len(t, records, 2)
	require.Equal(t, 1, log.Broken)
	require.Contains(t, log.FirstBroken, "a: line 2: it is longer than 1 MiB")
}

// The band is shown if one of several logs has whole seconds.
func TestWholeSecondsInOneOfTwoLogs(t *testing.T) {
	fine := `{"ts":1796040000.25,"request":{"remote_ip":"192.0.2.1"}}`
	_, log := readAll(t, accesslog.Options{}, 0, fine, line("12:00:00 +0000", `"GET /" 200 1`))
	require.True(t, log.HasWholeSeconds())
	_, log = readAll(t, accesslog.Options{Key: "address"}, 0, fine, "")
	require.False(t, log.HasWholeSeconds())
}

func TestPrices(t *testing.T) {
	prices, err := accesslog.ParsePrices([]string{"GET /export=5", "/static/=0"})
	require.NoError(t, err)
	records, _ := readAll(t, accesslog.Options{Prices: prices}, 0,
		line("12:00:00 +0000", `"GET /export?all=1 HTTP/1.1" 200 1`)+line("12:00:00 +0000", `"POST /export HTTP/1.1" 200 1`)+line("12:00:00 +0000", `"GET /static/a.css HTTP/1.1" 200 1`)+line("12:00:00 +0000", `"\x16\x03" 400 1`))
	var costs []float64
	for _, r := range records {
		costs = append(costs, r.Cost)
	}
	require.Equal(t, []float64{5, 1, 0, 1}, costs)
	for _, bad := range []string{"GET /export", "GET /export=x", "GET /export=-1", "{=1", "=1"} {
		_, err := accesslog.ParsePrices([]string{bad})
		require.Error(t, err, bad)
	}
}

func TestGzip(t *testing.T) {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := io.WriteString(w, line("12:00:00 +0000", `"GET /" 200 1`))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	records, _ := readAll(t, accesslog.Options{}, 0, packed.String()+packed.String())
	require.Len(t, records, 2, "a file of two members")
}

func TestOpenRejectsWhatItCannotRead(t *testing.T) {
	for _, row := range []struct {
		name    string
		text    string
		options accesslog.Options
	}{
		{"no format", "hello", accesslog.Options{}},
		{"an unknown format", "", accesslog.Options{Format: "xml"}},
		{"JSON without a time", "{}", accesslog.Options{Key: "k"}},
		{"JSON without a key", "{}", accesslog.Options{Time: "ts"}},
		{"an unknown field", line("12:00:00 +0000", `"GET /" 200 1`), accesslog.Options{Key: "cookie"}},
		{"an unknown cost", line("12:00:00 +0000", `"GET /" 200 1`), accesslog.Options{Cost: "time taken"}},
		{"a field of the time", line("12:00:00 +0000", `"GET /" 200 1`), accesslog.Options{Time: "ts"}},
		{"a missing column", "time,bytes\n", accesslog.Options{}},
		{"an empty CSV", "", accesslog.Options{Format: accesslog.CSV}},
		{"a gzip that is cut", "\x1f\x8b", accesslog.Options{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, err := accesslog.Open([]string{"a"}, []io.Reader{strings.NewReader(row.text)}, row.options, 0)
			require.Error(t, err)
		})
	}
	_, err := accesslog.Open(nil, nil, accesslog.Options{}, -1)
	require.Error(t, err)
}
