package integrations_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/examples/integrations"
	"github.com/aa014e13/tokenbucket/httplimit"
)

func TestAsynq(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := httplimit.Shared(tokenbucket.MustNew(tokenbucket.Per(1, time.Minute)))
		processed := 0
		handler := integrations.Asynq(limiter, (*asynq.Task).Type)(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
			processed++
			return nil
		}))
		task := asynq.NewTask("mail", nil)
		require.NoError(t, handler.ProcessTask(t.Context(), task))
		time.Sleep(20 * time.Second)

		err := handler.ProcessTask(t.Context(), task)
		require.Equal(t, 1, processed)
		require.False(t, integrations.AsynqIsFailure(err))
		delay := integrations.AsynqDelay(0, err, task)
		require.Equal(t, 40*time.Second, delay)
		time.Sleep(delay)
		require.NoError(t, handler.ProcessTask(t.Context(), task))
		require.Equal(t, 2, processed)
	})
}

func TestAsynqFailures(t *testing.T) {
	failure := errors.New("no route to host")
	require.True(t, integrations.AsynqIsFailure(failure))
	require.Positive(t, integrations.AsynqDelay(1, failure, asynq.NewTask("mail", nil)))
	limiter := fixed{err: errors.New("the store is down")}
	handler := integrations.Asynq(limiter, (*asynq.Task).Type)(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return failure }))
	require.ErrorIs(t, handler.ProcessTask(t.Context(), asynq.NewTask("mail", nil)), failure, "tasks run if the limiter fails")
}
