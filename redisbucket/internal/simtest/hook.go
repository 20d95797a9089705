package simtest

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// hook is a go-redis hook that makes each command begin at its own instant: commands of the
// same instant would choose their connections in any order. It also adds the deliberate bugs
// of the client.
type hook struct{ world *world }

// DialHook changes nothing.
func (hook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook defers a pipeline.
func (h hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.deferFor(cmds...)
		return next(ctx, cmds)
	}
}

// ProcessHook defers a command, and sends it twice if the deliberate bug does.
func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.deferFor(cmd)
		err := next(ctx, cmd)
		if h.repeats(cmd, err) {
			cmd.SetErr(nil)
			err = next(ctx, cmd)
		}
		return err
	}
}

// deferFor waits for at most two microseconds. The time follows from the commands.
func (h hook) deferFor(cmds ...redis.Cmder) {
	sum := fnv.New64a()
	for _, cmd := range cmds {
		fmt.Fprint(sum, cmd.Args()[2:]...) // without the script
	}
	time.Sleep(time.Duration(1 + sum.Sum64()%2000))
}

// repeats reports whether a command is sent again.
func (h hook) repeats(cmd redis.Cmder, err error) bool {
	isBroken := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
	switch h.world.bug {
	case Replay:
		return isBroken
	case GiveTwice:
		return err == nil && givesBack(cmd)
	default:
		return false
	}
}

// givesBack reports whether a command is: evalsha DIGEST 1 KEY LIMITS COST ..., with a cost
// below 0.
func givesBack(cmd redis.Cmder) bool {
	args := cmd.Args()
	if len(args) < 6 {
		return false
	}
	cost, ok := args[5].(string)
	return ok && strings.HasPrefix(cost, "-")
}
