package iolimit_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/iolimit"
)

// Downloads share 100 MB per second, and each gets at most 50 MB per second.
func Example() {
	total := tokenbucket.MustNew(iolimit.BytesPerSecond(100e6))
	download := func(source io.Reader) (int64, error) {
		own := tokenbucket.MustNew(iolimit.BytesPerSecond(50e6))
		return io.Copy(io.Discard, iolimit.NewReader(context.Background(), source, own, total))
	}

	start := time.Now()
	n, err := download(strings.NewReader(strings.Repeat("x", 1_500_000)))
	fmt.Println(n, err)
	// The bucket holds 0.5 MB at first. The other 1 MB takes 20 ms.
	fmt.Println(time.Since(start) >= 20*time.Millisecond)
	// Output:
	// 1500000 <nil>
	// true
}

// A Write of 0.3 MB returns when its bytes are paid for. A change of the rate takes effect at once.
func ExampleNewWriter() {
	bucket := tokenbucket.MustNew(iolimit.BytesPerSecond(1))
	w := iolimit.NewWriter(context.Background(), io.Discard, bucket)

	time.AfterFunc(time.Millisecond, func() {
		_ = bucket.SetLimits(iolimit.BytesPerSecond(100e6))
	})
	fmt.Println(w.Write(make([]byte, 300_000))) // it would have taken three days
	// Output: 300000 <nil>
}

// Each connection of a server writes 1 MB per second, and all of them together 10 MB per second.
func ExampleNewListener() {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	total := tokenbucket.MustNew(iolimit.BytesPerSecond(10e6))
	listener := iolimit.NewListener(inner, func(net.Conn) []iolimit.Option {
		own := tokenbucket.MustNew(iolimit.BytesPerSecond(1e6))
		return []iolimit.Option{iolimit.WithWrite(own, total)}
	})
	server := &http.Server{Handler: http.NotFoundHandler()}
	go server.Serve(listener)
	defer server.Close()

	answer, err := http.Get("http://" + inner.Addr().String())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer answer.Body.Close()
	fmt.Println(answer.Status)
	// Output: 404 Not Found
}

// A connection with a limit for each direction.
func ExampleOption() {
	download := tokenbucket.MustNew(tokenbucket.Limit{Capacity: 1000, RefillPerSec: 1e-3})
	upload := tokenbucket.MustNew(tokenbucket.Limit{Capacity: 100, RefillPerSec: 1e-3})
	near, far := net.Pipe()
	conn := iolimit.NewConn(near, iolimit.WithRead(download), iolimit.WithWrite(upload))
	defer conn.Close()
	go func() { _, _ = io.Copy(far, far) }() // the other end sends everything back

	fmt.Fprint(conn, "hello, world")
	answer := make([]byte, 12)
	_, err := io.ReadFull(conn, answer)
	fmt.Printf("%s %v\n", answer, err)
	fmt.Printf("left: %.0f bytes to read, %.0f to write\n", download.Tokens(), upload.Tokens())
	// Output:
	// hello, world <nil>
	// left: 988 bytes to read, 88 to write
}
