package integrations

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/aa014e13/tokenbucket/httplimit"
)

// TooEarly is the error of a task whose key has no token yet.
type TooEarly struct {
	Wait time.Duration
}

func (e *TooEarly) Error() string { return fmt.Sprintf("too early: try again in %v", e.Wait) }

// Asynq puts a task back if there is no token for its key, so that no worker has to wait.
// Use it with a server whose Config has AsynqDelay and AsynqIsFailure. With redisbucket as
// the limiter, the workers of all machines share the rate.
func Asynq(limiter httplimit.Limiter, key func(*asynq.Task) string) asynq.MiddlewareFunc {
	return func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			d, err := limiter.Take(ctx, key(task), 1)
			if err == nil && !d.OK {
				return &TooEarly{d.Wait}
			}
			return next.ProcessTask(ctx, task)
		})
	}
}

// AsynqDelay is a RetryDelayFunc: a task that was too early runs again when there is a
// token for it.
func AsynqDelay(retried int, err error, task *asynq.Task) time.Duration {
	if early := (*TooEarly)(nil); errors.As(err, &early) {
		return early.Wait
	}
	return asynq.DefaultRetryDelayFunc(retried, err, task)
}

// AsynqIsFailure is an IsFailure: a task that was too early has not failed, so it keeps
// its retries.
func AsynqIsFailure(err error) bool {
	early := (*TooEarly)(nil)
	return !errors.As(err, &early)
}
