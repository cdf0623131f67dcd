package local

import (
	"context"
	"fmt"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/join"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/framework"
)

// Put stores value under key. It has no answer, and returns when the kernel has the frame.
func (c *client) Put(ctx context.Context, key string, value []byte) error {
	err := context.Cause(ctx)
	if err == nil {
		err = c.put(ctx, wire.ValuedBody{Name: key, Value: value})
	}
	if err != nil {
		return join.OpError("put", key, err)
	}
	return nil
}

func (c *client) put(ctx context.Context, body wire.ValuedBody) error {
	o, err := c.send(wire.Put, 0, body)
	if err != nil {
		return err
	}
	select {
	case <-o.written:
		return nil
	case <-c.pendingCalls.Done():
		return c.pendingCalls.Err()
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-time.After(c.timeout):
		err = fmt.Errorf("%w (after %v)", framework.ErrTimeout, c.timeout)
	}
	c.withdrawFrame(o) // If it is not being written.
	return fmt.Errorf("%w: %w", err, errUnread)
}

func (c *client) Get(ctx context.Context, p framework.Proc, key string) ([]byte, error) {
	if p.Namespace != c.id.Proc.Namespace {
		return nil, fmt.Errorf("bootstrap: get %q: %w: %s is not in this job (%s)", key, framework.ErrRank, p, c.id.Proc.Namespace)
	}
	v, err := request[wire.ValueBody](ctx, c, "get", key, wire.Get, wire.GetBody{Rank: p.Rank, Key: key}, c.timeout)
	return v.Value, err
}

func (c *client) Fence(ctx context.Context, group []framework.Proc, tag string) error {
	_, err := enter[wire.Empty](ctx, c, "fence", wire.Fence, group, tag, nil)
	return err
}

func (c *client) Construct(ctx context.Context, group []framework.Proc, tag string, payload []byte) (bootstrap.Constructed, error) {
	const op = "group construct"
	if err := wire.CheckSizes(tag, payload, bootstrap.MaxPayload); err != nil {
		return bootstrap.Constructed{}, join.OpError(op, tag, err)
	}
	a, err := enter[wire.ConstructedBody](ctx, c, op, wire.Construct, group, tag, payload)
	if err == nil && (a.ContextID == 0 || len(a.Payloads) != len(group)) {
		err = launcherError(op, fmt.Errorf("context id %d with %d payloads for %d members", a.ContextID, len(a.Payloads), len(group)))
	}
	return bootstrap.Constructed{ContextID: a.ContextID, Payloads: a.Payloads}, err
}

// enter enters a fence or construct.
func enter[A any](ctx context.Context, c *client, op string, k wire.Kind, group []framework.Proc, tag string, payload []byte) (A, error) {
	runs := wire.EncodeBody(wire.MakeRuns(group))
	return request[A](ctx, c, op, tag, k, wire.JoinBody{Tag: tag, Group: runs, Payload: payload}, bootstrap.Timeout(ctx, c.timeout))
}

func (c *client) Publish(ctx context.Context, name string, value []byte) error {
	_, err := request[wire.Empty](ctx, c, "publish", name, wire.Publish, wire.ValuedBody{Name: name, Value: value}, c.timeout)
	return err
}

func (c *client) Unpublish(ctx context.Context, name string) error {
	_, err := request[wire.Empty](ctx, c, "unpublish", name, wire.Unpublish, wire.NameBody{Name: name}, c.timeout)
	return err
}

func (c *client) Lookup(ctx context.Context, name string, wait bool) ([]byte, bool, error) {
	v, err := request[wire.ValueBody](ctx, c, "lookup", name, wire.Lookup, wire.LookupBody{Name: name, Wait: wait}, c.timeout)
	return v.Value, v.Found, err
}

func (c *client) Report(ctx context.Context, name string, body []byte) error {
	_, err := request[wire.Empty](ctx, c, "report", name, wire.Report, wire.ValuedBody{Name: name, Value: body}, c.timeout)
	return err
}
