package tokenbucket_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/internal/testing/waittest"
)

var _ tokenbucket.Clock = (*clock.Mock)(nil)

func TestOneClockReadACall(t *testing.T) {
	mock := new(waittest.Clock)
	bucket := newBucket(t, mock, Limit{3, 1})
	for range 2 { // admitted, then refused
		for name, call := range map[string]func(){
			"TryAcquire": func() { bucket.TryAcquire(1) },
			"Take":       func() { bucket.Take(1) },
			"Refund":     func() { _ = bucket.Refund(0) },
			"Charge":     func() { _ = bucket.Charge(0) },
		} {
			before := mock.Reads()
			call()
			require.Equal(t, before+1, mock.Reads(), name)
		}
		require.NoError(t, bucket.Charge(2))
	}
	require.NoError(t, bucket.Refund(100))
	before := mock.Reads()
	require.NoError(t, bucket.Wait(context.Background(), 1))
	require.Equal(t, before+1, mock.Reads(), "Wait")
}

// heldClock lets a test stop a goroutine that reads the clock or sets a timer, as the
// scheduler may do.
type heldClock struct {
	waittest.Clock
	hold  atomic.Pointer[heldReading]
	after atomic.Pointer[func()] // runs before the next timer is set
}

// heldReading is a goroutine that has read the clock. It continues after resume.
type heldReading struct{ read, resume chan struct{} }

// holdNext stops the next goroutine that reads the clock, after the reading.
func (c *heldClock) holdNext() *heldReading {
	h := &heldReading{make(chan struct{}), make(chan struct{})}
	c.hold.Store(h)
	return h
}

func (c *heldClock) Since(t time.Time) time.Duration {
	now := c.Clock.Since(t)
	if h := c.hold.Swap(nil); h != nil {
		close(h.read)
		<-h.resume
	}
	return now
}

func (c *heldClock) After(d time.Duration) <-chan time.Time {
	if run := c.after.Swap(nil); run != nil {
		(*run)()
	}
	return c.Clock.After(d)
}

func TestReadInOneOrderLockedInAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mock := new(heldClock)
		bucket := newBucket(t, mock, Limit{3, 1})
		mock.Set(10 * sec)
		var group sync.WaitGroup
		late := func(call func()) *heldReading {
			h := mock.holdNext()
			group.Go(call)
			<-h.read
			return h
		}
		acquired := late(func() {
			_, ok := bucket.TryAcquire(1)
			assert.True(t, ok, "no part of a burst is refused")
		})
		waited := late(func() { assert.NoError(t, bucket.Wait(context.Background(), 1)) })
		refused := late(func() {
			wait, ok := bucket.TryAcquire(2)
			assert.False(t, ok)
			assert.Equal(t, 7*sec, wait, "2 are there at 17 s")
		})
		mock.Set(15 * sec)
		_, ok := bucket.TryAcquire(1)
		require.True(t, ok)
		for _, h := range []*heldReading{acquired, waited, refused} {
			close(h.resume)
			synctest.Wait()
		}
		group.Wait()
		require.Equal(t, 0.0, bucket.Tokens(), "nothing is minted")
	})
}

func TestDeadlineIsHeldAgainstTheTurnNotAnOldReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mock := &heldClock{Clock: *waittest.NewClock(time.Now())}
		bucket := newBucket(t, mock, Limit{1, 1})
		bucket.TryAcquire(1)
		ctx, cancel := context.WithTimeout(context.Background(), 5500*ms)
		defer cancel()
		h := mock.holdNext()
		result := make(chan error, 1)
		go func() { result <- bucket.Wait(ctx, 1) }() // due at 1 s
		<-h.read
		time.Sleep(5 * sec)
		mock.Set(5 * sec)
		close(h.resume)
		synctest.Wait()
		mock.Set(5*sec + 1)
		require.NoError(t, <-result)
	})
}

// golang/go#56924 on a mock: A gives up at 0.5 s, so B is due at 1 s and not at 2 s.
// A test that sees Waiting() == 1 may advance. If B counted before its new timer is set,
// it would sleep for ever and the test would hang.
func TestWaitingCountsOnlyWhoseTimerIsSet(t *testing.T) {
	mock := new(heldClock)
	bucket := newBucket(t, mock, Limit{1, 1})
	bucket.TryAcquire(1)
	ctx, cancel := context.WithCancel(context.Background())
	a, b := make(chan error, 1), make(chan error, 1)
	go func() { a <- bucket.Wait(ctx, 1) }()
	pollWaiting(bucket, 1)
	go func() { b <- bucket.Wait(context.Background(), 1) }()
	pollWaiting(bucket, 2)
	mock.Set(500 * ms)

	aWakes := mock.holdNext()
	cancel()
	<-aWakes.read
	bWakes := mock.holdNext()
	close(aWakes.resume)
	require.ErrorIs(t, <-a, context.Canceled)
	<-bWakes.read
	require.Zero(t, bucket.Waiting(), "B has woken and is about to set another timer")
	close(bWakes.resume)
	pollWaiting(bucket, 1)
	mock.Set(sec)
	require.NoError(t, <-b)
}

// After a charge, the timer rings too early. The waiter does not count until it has set
// another timer.
func TestWaitingDoesNotCountWhoWokeInVain(t *testing.T) {
	mock := new(heldClock)
	bucket := newBucket(t, mock, Limit{1, 1})
	bucket.TryAcquire(1)
	left := make(chan error, 1)
	go func() { left <- bucket.Wait(context.Background(), 1) }()
	pollWaiting(bucket, 1)
	require.NoError(t, bucket.Charge(1))
	wakes := mock.holdNext()
	mock.Set(sec)
	<-wakes.read
	setsTimer := mock.holdNext()
	close(wakes.resume)
	<-setsTimer.read
	require.Zero(t, bucket.Waiting())
	close(setsTimer.resume)
	pollWaiting(bucket, 1)
	mock.Set(2 * sec)
	require.NoError(t, <-left)
}

// A mock may move while a waiter is about to set its timer. Here it moves by 9 s between
// the reading of the clock and the timer, so that the timer would ring at 11 s.
func TestMockThatMovesWhileATimerIsSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mock := new(heldClock)
		bucket := newBucket(t, mock, Limit{1, 1})
		bucket.TryAcquire(1)
		var group sync.WaitGroup
		queue := func(ctx context.Context) {
			group.Go(func() { _ = bucket.Wait(ctx, 1) })
			synctest.Wait()
		}
		queue(context.Background())
		ctx, cancel := context.WithCancel(context.Background())
		queue(ctx)
		queue(context.Background())
		cancel() // the last is due at 2 s, its timer would ring at 3 s
		synctest.Wait()
		require.Equal(t, 2, bucket.Waiting())

		firstWakes := mock.holdNext()
		mock.Set(sec)
		<-firstWakes.read
		lastWakes := mock.holdNext()
		close(firstWakes.resume)
		<-lastWakes.read
		setsTimer := mock.holdNext()
		close(lastWakes.resume)
		<-setsTimer.read
		mock.Set(10 * sec)
		close(setsTimer.resume)
		group.Wait()
	})
}

// pollWaiting does what a test with a mock clock does before it advances the clock.
func pollWaiting(bucket *tokenbucket.Bucket, n int) {
	for bucket.Waiting() != n {
		runtime.Gosched()
	}
}

// advanceWhenCounted acts like a test that polls Waiting: once Waiting counts one waiter,
// it sets the clock to the instant at which the waiter is due. Here that happens at the
// worst moment for the waiter, which is stopped at s.
func advanceWhenCounted(t *testing.T, mock *heldClock, bucket *tokenbucket.Bucket, s *heldReading, due time.Duration) {
	t.Helper()
	<-s.read
	counted := bucket.Waiting() > 0
	set := func() { mock.Set(due) }
	if counted {
		mock.after.Store(&set) // between the waiter's reading of the clock and its timer
	}
	close(s.resume)
	synctest.Wait()
	if !counted {
		require.Equal(t, 1, bucket.Waiting())
		set()
		synctest.Wait()
	}
}

func requireDone(t *testing.T, mock *heldClock, left chan error) {
	t.Helper()
	select {
	case err := <-left:
		require.NoError(t, err)
	default:
		mock.Set(time.Hour)
		require.NoError(t, <-left)
		t.Fatal("the waiter was due but did not wake: Waiting counted it before its timer was set")
	}
}

func TestWaitingDoesNotCountWhoHasYetToSetItsTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mock := new(heldClock)
		bucket := newBucket(t, mock, Limit{1, 1})
		bucket.TryAcquire(1)
		left := make(chan error, 1)
		queueing := mock.holdNext()
		go func() { left <- bucket.Wait(context.Background(), 1) }()
		advanceWhenCounted(t, mock, bucket, queueing, sec)
		requireDone(t, mock, left)
	})
}

func TestWaitingDoesNotCountWhoseTimerRangInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mock := new(heldClock)
		bucket := newBucket(t, mock, Limit{1, 1})
		bucket.TryAcquire(1)
		left := make(chan error, 1)
		go func() { left <- bucket.Wait(context.Background(), 1) }()
		synctest.Wait()
		require.NoError(t, bucket.Charge(1)) // due at 2 s now
		woken := mock.holdNext()
		mock.Set(sec)
		advanceWhenCounted(t, mock, bucket, woken, 2*sec)
		requireDone(t, mock, left)
	})
}
