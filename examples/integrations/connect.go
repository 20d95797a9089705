package integrations

import (
	"errors"
	"net/http"
	"slices"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/httplimit"
)

// Connect returns a limiter's middleware for connect handlers. Connect's own error writer
// answers in the protocol of the request, which may be Connect, gRPC or gRPC-Web. A
// refusal is resource_exhausted. It has the wait as a RetryInfo, to the nanosecond, and as
// Retry-After, in whole seconds. If no limiter can decide and httplimit.WithFailClosed is
// among the options, pass Unavailable as well.
func Connect(limiter httplimit.Limiter, opts ...httplimit.Option) (func(http.Handler) http.Handler, error) {
	writer := connect.NewErrorWriter()
	return httplimit.New(limiter, append(slices.Clip(opts), httplimit.WithRefusal(
		func(w http.ResponseWriter, r *http.Request, d tokenbucket.Decision) {
			_ = writer.Write(w, r, retryable(connect.CodeResourceExhausted, "rate limit exceeded", d.Wait))
		}))...)
}

// Unavailable is the option that answers with connect's unavailable if no limiter can
// decide.
func Unavailable() httplimit.Option {
	writer := connect.NewErrorWriter()
	return httplimit.WithUnavailable(func(w http.ResponseWriter, r *http.Request, _ error) {
		_ = writer.Write(w, r, connect.NewError(connect.CodeUnavailable, errors.New("the rate limiter does not answer")))
	})
}

// retryable returns an error with a RetryInfo, unless no wait is long enough.
func retryable(code connect.Code, text string, wait time.Duration) *connect.Error {
	err := connect.NewError(code, errors.New(text))
	if wait == tokenbucket.Never {
		return err
	}
	if detail, detailErr := connect.NewErrorDetail(&errdetails.RetryInfo{RetryDelay: durationpb.New(wait)}); detailErr == nil {
		err.AddDetail(detail)
	}
	return err
}
