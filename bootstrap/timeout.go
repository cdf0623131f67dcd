package bootstrap

import (
	"context"
	"time"
)

type timeoutKey struct{}

// WithTimeout returns a context for a fence or construct with a deadline that counts as that of
// Env.Timeout. When it passes, the call fails for all members with the members that are missing.
// The deadline of a context ends the caller's part only.
func WithTimeout(ctx context.Context, timeout time.Duration) context.Context {
	return context.WithValue(ctx, timeoutKey{}, timeout)
}

// Timeout returns the limit of a fence or construct. most is Env.Timeout, or 0 for the limit of the
// context only.
func Timeout(ctx context.Context, most time.Duration) time.Duration {
	t, ok := ctx.Value(timeoutKey{}).(time.Duration)
	switch {
	case !ok:
		return most
	case most == 0:
		return t
	}
	return min(max(t, time.Millisecond), most)
}
