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
	"github.com/aa014e13/tokenbucket/internal/testing/redistest"
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

// asynq archives a task that returns any error on its last attempt.
func TestAsynqTasksOnTheirLastAttemptAreNotArchived(t *testing.T) {
	server := redistest.Start(t)
	redis := asynq.RedisClientOpt{Addr: server.Addr}
	client := asynq.NewClient(redis)
	defer client.Close()
	for range 2 {
		_, err := client.Enqueue(asynq.NewTask("mail", nil), asynq.MaxRetry(0))
		require.NoError(t, err)
	}
	limiter := httplimit.Shared(tokenbucket.MustNew(tokenbucket.Per(1, 300*time.Millisecond)))
	processed := make(chan struct{}, 2)
	workers := asynq.NewServer(redis, asynq.Config{RetryDelayFunc: integrations.AsynqDelay, IsFailure: integrations.AsynqIsFailure, LogLevel: asynq.ErrorLevel})
	require.NoError(t, workers.Start(integrations.Asynq(limiter, (*asynq.Task).Type)(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		processed <- struct{}{}
		return nil
	}))))
	defer workers.Shutdown()
	inspector := asynq.NewInspector(redis)
	defer inspector.Close()
	require.Eventually(t, func() bool {
		info, err := inspector.GetQueueInfo("default")
		return len(processed) == 2 || err == nil && info.Archived > 0
	}, time.Minute, 20*time.Millisecond)
	require.Len(t, processed, 2)
}

func TestAsynqFailures(t *testing.T) {
	failure := errors.New("no route to host")
	require.True(t, integrations.AsynqIsFailure(failure))
	require.Positive(t, integrations.AsynqDelay(1, failure, asynq.NewTask("mail", nil)))
	limiter := fixed{err: errors.New("the store is down")}
	handler := integrations.Asynq(limiter, (*asynq.Task).Type)(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return failure }))
	require.ErrorIs(t, handler.ProcessTask(t.Context(), asynq.NewTask("mail", nil)), failure, "tasks run if the limiter fails")
}
