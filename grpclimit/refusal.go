package grpclimit

import (
	"math"
	"strconv"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/httplimit"
)

// The trailers.
const (
	pushback  = "grpc-retry-pushback-ms" // gRFC A6
	rateLimit = "ratelimit"
	policies  = "ratelimit-policy"
)

// The messages of refusals.
const (
	exceeded    = "rate limit exceeded: "
	unavailable = "the rate limiter does not answer: "
	never       = "no wait is long enough: ask for less"
	tooLate     = "retry in more than 24 days, or ask for less"
)

// refuse returns the trailers and the error of a call that does not go on.
func (s *server) refuse(a *httplimit.Answer) (metadata.MD, error) {
	e := a.Event()
	r := refusal{codes.ResourceExhausted, exceeded, e.Decision.Wait, e.Policy}
	if e.LimiterIndex < 0 {
		r = s.undecided()
	}
	figures, back, message := r.texts(a.AppendRateLimit(make([]byte, 0, 160)))
	refused := &refusedError{r.status(message), [3]string{back, figures, a.RateLimitPolicy()}}
	values := refused.trailers[:]
	if figures == "" {
		return metadata.MD{pushback: values[:1:1]}, refused
	}
	return metadata.MD{pushback: values[:1:1], rateLimit: values[1:2:2], policies: values[2:]}, refused
}

// refusedError is an error with a status, like that of package status, and the values of the
// trailers: together they are one allocation.
type refusedError struct {
	status   *status.Status
	trailers [3]string
}

func (e *refusedError) Error() string { return e.status.String() }

// GRPCStatus lets gRPC and status.FromError find the status.
func (e *refusedError) GRPCStatus() *status.Status { return e.status }

// undecided is the refusal of WithFailClosed.
func (s *server) undecided() refusal {
	return refusal{code: codes.Unavailable, about: unavailable, wait: s.closedFor}
}

// refusal is the figures of a call that is refused.
type refusal struct {
	code   codes.Code
	about  string        // the beginning of the message
	wait   time.Duration // until the same call would be admitted
	policy string        // the policy that refused, "" if none did
}

// longestPushback is the longest wait that clients accept, by gRFC A6.
const longestPushback = math.MaxInt32 * time.Millisecond

// retryDelay returns the wait, and false if a client cannot be asked to wait that long.
func (r refusal) retryDelay() (time.Duration, bool) {
	return r.wait, r.wait != tokenbucket.Never && r.wait <= longestPushback
}

// texts returns three strings: its argument, the pushback and the message. All are parts of
// one string, so they are one allocation. The pushback is the wait in milliseconds, rounded
// up, or -1 if retryDelay reports false.
func (r refusal) texts(begin []byte) (beginning, back, message string) {
	from := len(begin)
	text := append(begin, r.about...)
	wait, ok := r.retryDelay()
	if !ok {
		why := tooLate
		if wait == tokenbucket.Never {
			why = never
		}
		all := string(append(text, why...))
		return all[:from], "-1", all[from:]
	}
	backFrom := len(text) + len("retry in ")
	text = strconv.AppendInt(append(text, "retry in "...), int64((wait+time.Millisecond-1)/time.Millisecond), 10)
	backTo := len(text)
	all := string(append(text, " ms"...))
	return all[:from], all[backFrom:backTo], all[from:]
}

// err returns the error, and the trailer that has the pushback alone.
func (r refusal) err() (metadata.MD, error) {
	_, back, message := r.texts(nil)
	return metadata.MD{pushback: {back}}, r.status(message).Err()
}

// status returns a status with RetryInfo, if there is a time to retry, and QuotaFailure,
// if a policy refused.
//
// Sending the details as the trailer grpc-status-details-bin would take half as many
// allocations. But if an outer interceptor then changed the status code, the trailer would
// still have the old one, and clients would report Internal.
func (r refusal) status(message string) *status.Status {
	f := forms.Get().(*form)
	defer forms.Put(f)
	f.status.Code, f.status.Message, f.status.Details = int32(r.code), message, f.status.Details[:0]
	if delay, ok := r.retryDelay(); ok {
		f.delay.Seconds, f.delay.Nanos = int64(delay/time.Second), int32(delay%time.Second)
		f.add(&f.packedRetry, &f.retry)
	}
	if r.policy != "" {
		f.violation.Subject = r.policy
		f.add(&f.packedQuota, &f.quota)
	}
	return status.FromProto(&f.status) // a deep copy: nothing refers to f when it goes back
}

// form is a status from a pool, which is filled in and then copied. Making and packing new
// details would take more than twice as many allocations. A form belongs to one call of status
// at a time.
type form struct {
	status                   spb.Status
	packedRetry, packedQuota anypb.Any
	retry                    errdetails.RetryInfo
	delay                    durationpb.Duration
	quota                    errdetails.QuotaFailure
	violation                errdetails.QuotaFailure_Violation
}

var forms = sync.Pool{New: func() any {
	f := &form{}
	f.retry.RetryDelay = &f.delay
	f.violation.Description = "rate limit exceeded"
	f.quota.Violations = []*errdetails.QuotaFailure_Violation{&f.violation}
	f.packedRetry.TypeUrl = typeURL(&f.retry)
	f.packedQuota.TypeUrl = typeURL(&f.quota)
	return f
}}

func typeURL(m proto.Message) string {
	return "type.googleapis.com/" + string(m.ProtoReflect().Descriptor().FullName())
}

// add packs a detail and adds it to the status.
func (f *form) add(packed *anypb.Any, detail proto.Message) {
	// Marshalling fails only for strings that are not UTF-8; names of policies are ASCII.
	packed.Value, _ = proto.MarshalOptions{}.MarshalAppend(packed.Value[:0], detail)
	f.status.Details = append(f.status.Details, packed)
}
