// Package observe shows how to trace the requests of redisbucket with redisotel, and how to
// watch its connections with redisprometheus. It is a module of its own, so that redisbucket
// depends on neither.
package observe

import (
	"context"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/trace"

	"github.com/aa014e13/tokenbucket/redisbucket"
)

// Links is a hook for a client that sends the requests of several callers in one pipeline:
// it links the pipeline's span to those of all callers. Add it after redisotel's hook. A
// client that gets its hooks from redisbucket.WithInstrument does not need it.
type Links struct{}

// DialHook changes nothing.
func (Links) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook changes nothing: a command has its caller's span as its parent.
func (Links) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook links the pipeline's span.
func (Links) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		span := trace.SpanFromContext(ctx)
		for _, caller := range redisbucket.Callers(ctx) {
			span.AddLink(trace.LinkFromContext(caller))
		}
		return next(ctx, cmds)
	}
}
