package local

import (
	"context"
	"fmt"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/local/internal/wire"
	"github.com/ferrympi/ferry/framework"
)

// request makes a call and decodes its answer as A.
func request[A any](ctx context.Context, c *client, op, name string, k wire.Kind, body any) (a A, err error) {
	if err := checkLimits(op, name, nil, 0); err != nil {
		return a, err
	}
	m, waitErr, err := c.call(ctx, k, body)
	if err != nil {
		if waitErr != nil {
			err = fmt.Errorf("%w: %w", waitErr, err)
		}
		return a, fmt.Errorf("bootstrap: %s %q: %w", op, name, err)
	}
	if m.Kind == wire.Failure {
		return a, c.failed(op, name, m, waitErr)
	}
	if a, err = wire.Decode[A](m.Body); err != nil {
		return a, launcherError(op, err)
	}
	return a, nil
}

// checkLimit refuses what no server would take.
func checkLimit(op, name, what string, n, limit int) error {
	if n <= limit {
		return nil
	}
	if len(name) > 32 {
		name = name[:32] + "..."
	}
	return fmt.Errorf("bootstrap: %s %q: a %s of %d bytes is over the limit of %d: %w", op, name, what, n, limit, framework.ErrUnsupported)
}

func checkLimits(op, name string, value []byte, limit int) error {
	if err := checkLimit(op, name, "name", len(name), bootstrap.MaxName); err != nil {
		return err
	}
	return checkLimit(op, name, "value", len(value), limit)
}

// Put stores value under key. It has no answer.
func (c *client) Put(ctx context.Context, key string, value []byte) error {
	if err := checkLimits("put", key, value, bootstrap.MaxValue); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("bootstrap: put %q: %w", key, context.Cause(ctx))
	}
	if err := c.send(wire.Put, 0, wire.ValuedBody{Name: key, Value: value}); err != nil {
		return fmt.Errorf("bootstrap: put %q: %w", key, err)
	}
	return nil
}

func (c *client) Get(ctx context.Context, p framework.Proc, key string) ([]byte, error) {
	if p.Namespace != c.id.Proc.Namespace {
		return nil, fmt.Errorf("bootstrap: get %q: %w: %s is not of this job (%s)", key, framework.ErrRank, p, c.id.Proc.Namespace)
	}
	v, err := request[wire.ValueBody](ctx, c, "get", key, wire.Get, wire.GetBody{Rank: p.Rank, Key: key})
	return v.Value, err
}

func (c *client) Fence(ctx context.Context, group []framework.Proc, tag string) error {
	_, err := join[wire.Empty](ctx, c, "fence", wire.Fence, group, tag, nil)
	return err
}

func (c *client) Construct(ctx context.Context, group []framework.Proc, tag string, payload []byte) (bootstrap.Constructed, error) {
	const op = "group construct"
	if err := checkLimits(op, tag, payload, bootstrap.MaxPayload); err != nil {
		return bootstrap.Constructed{}, err
	}
	a, err := join[wire.ConstructedBody](ctx, c, op, wire.Construct, group, tag, payload)
	if err == nil && (a.ContextID == 0 || len(a.Payloads) != len(group)) {
		err = launcherError(op, fmt.Errorf("context id %d with %d payloads for %d members", a.ContextID, len(a.Payloads), len(group)))
	}
	return bootstrap.Constructed{ContextID: a.ContextID, Payloads: a.Payloads}, err
}

// join enters a fence or construct.
func join[A any](ctx context.Context, c *client, op string, k wire.Kind, group []framework.Proc, tag string, payload []byte) (a A, err error) {
	g, err := wire.EncodeBody(wire.MakeRuns(group))
	if err != nil {
		return a, fmt.Errorf("bootstrap: %s %q: %w", op, tag, err)
	}
	return request[A](ctx, c, op, tag, k, wire.JoinBody{Tag: tag, Group: g, Payload: payload})
}

func (c *client) Publish(ctx context.Context, name string, value []byte) error {
	if err := checkLimits("publish", name, value, bootstrap.MaxValue); err != nil {
		return err
	}
	_, err := request[wire.Empty](ctx, c, "publish", name, wire.Publish, wire.ValuedBody{Name: name, Value: value})
	return err
}

func (c *client) Unpublish(ctx context.Context, name string) error {
	_, err := request[wire.Empty](ctx, c, "unpublish", name, wire.Unpublish, wire.NameBody{Name: name})
	return err
}

func (c *client) Lookup(ctx context.Context, name string, wait bool) ([]byte, bool, error) {
	v, err := request[wire.ValueBody](ctx, c, "lookup", name, wire.Lookup, wire.LookupBody{Name: name, Wait: wait})
	return v.Value, v.Found, err
}

func (c *client) Psets(ctx context.Context) ([]string, error) {
	b, err := request[wire.NamesBody](ctx, c, "psets", "", wire.Psets, wire.Empty{})
	return b.Names, err
}

func (c *client) Pset(ctx context.Context, name string) (bootstrap.PsetInfo, error) {
	b, err := request[wire.PsetBody](ctx, c, "pset", name, wire.Pset, wire.NameBody{Name: name})
	return bootstrap.PsetInfo{Name: b.Name, Members: c.id.Procs(b.Ranks)}, err
}

func (c *client) Report(ctx context.Context, name string, body []byte) error {
	if err := checkLimits("report", name, body, bootstrap.MaxValue); err != nil {
		return err
	}
	_, err := request[wire.Empty](ctx, c, "report", name, wire.Report, wire.ValuedBody{Name: name, Value: body})
	return err
}
