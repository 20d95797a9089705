package integrations

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/httplimit"
)

// TooEarly is the error of a task whose key has no token yet.
type TooEarly struct {
	Wait time.Duration
}

func (e *TooEarly) Error() string { return fmt.Sprintf("too early: try again in %v", e.Wait) }

// Asynq puts a task back if there is no token for its key, so that no worker has to wait.
// But a task on its last attempt waits in its worker, because asynq would archive it. Use
// Asynq with a server whose Config has AsynqDelay and AsynqIsFailure. With redisbucket as the
// limiter, the workers of all machines share the rate.
func Asynq(limiter httplimit.Limiter, key func(*asynq.Task) string) asynq.MiddlewareFunc {
	return func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			for {
				d, err := limiter.Take(ctx, key(task), 1)
				if err != nil || d.OK {
					return next.ProcessTask(ctx, task)
				}
				if !isLastAttempt(ctx) || d.Wait == tokenbucket.Never {
					return &TooEarly{d.Wait}
				}
				select {
				case <-time.After(d.Wait):
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		})
	}
}

func isLastAttempt(ctx context.Context) bool {
	retried, ok := asynq.GetRetryCount(ctx)
	most, _ := asynq.GetMaxRetry(ctx)
	return ok && retried >= most
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
