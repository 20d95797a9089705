package tokenbucket_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
)

func TestDeadlineErrorIsATimeout(t *testing.T) {
	var err error = &tokenbucket.DeadlineError{Wait: sec}
	require.ErrorIs(t, err, context.DeadlineExceeded)
	var timeout interface{ Timeout() bool }
	require.True(t, errors.As(err, &timeout) && timeout.Timeout())
	require.Contains(t, (&tokenbucket.DeadlineError{Wait: Never}).Error(), "never", "not a number of hours")
}

func TestErrorsSayWhatOffendsAndWhatToDo(t *testing.T) {
	ctx, stop := context.WithTimeout(context.Background(), time.Hour)
	defer stop()
	limit := Limit{10, 1e-3}
	bucket, err := tokenbucket.New(limit, tokenbucket.WithTokens(0), tokenbucket.WithMaxWaiters(0))
	require.NoError(t, err)
	build := func(l Limit, opts ...tokenbucket.Option) error { _, err := tokenbucket.New(l, opts...); return err }
	reserve := func(cost float64) error { _, err := bucket.Reserve(cost); return err }
	parse := func(value string) error { _, err := tokenbucket.ParseRetryAfter(value, time.Now()); return err }
	for i, c := range []struct {
		err          error
		offends, say string
	}{
		{build(Limit{-3, 1}), "capacity -3", "choose one above 0"},
		{build(Limit{3, -7}), "refill -7", "choose a finite one above 0"},
		{bucket.SetLimits(limit, limit), "2 limits for a bucket with 1", "pass as many as Limits returns"},
		{build(limit, tokenbucket.WithTokens(11)), "WithTokens(11)", "choose from 0 to the capacity of 10"},
		{build(limit, tokenbucket.WithMaxWaiters(-2)), "WithMaxWaiters(-2)", "choose 0 or more"},
		{build(limit, tokenbucket.WithState(time.Time{}, nil)), "WithState", "pass one state for each limit"},
		{bucket.Wait(ctx, -1), "-1", "pass a number of tokens, 0 or more"},
		{bucket.Wait(ctx, 11), "cost 11, capacity 10", "split the request or raise the capacity"},
		{bucket.Wait(ctx, 9), "the wait of 2h", "allow more time"},
		{reserve(9), "0 are queued already", "retry later or raise WithMaxWaiters"},
		{bucket.Charge(math.Inf(1)), "+Inf", "pass a finite number of tokens"},
		{bucket.Refund(math.NaN()), "NaN", "pass a finite number of tokens"},
		{tokenbucket.Costs{"export": 50}.Validate(10), `"export"`, "split the request or raise the capacity"},
		{parse("soon"), `"soon"`, "treat it as absent"},
	} {
		require.Error(t, c.err, i)
		require.True(t, strings.HasPrefix(c.err.Error(), "tokenbucket: ") || i == 12, c.err)
		require.Contains(t, c.err.Error(), c.offends)
		require.Contains(t, c.err.Error(), c.say)
	}
}
