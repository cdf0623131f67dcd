package mesh

import (
	"context"
	"fmt"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/join"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/framework"
)

// The client offers the optional interfaces of the launcher, with its own deadlines, limits and
// errors after Close. Each one wraps the client, so that framework.As finds those that exist.

func withOptionalInterfaces(c *client) bootstrap.Client {
	var out bootstrap.Client = c
	if d, ok := framework.As[bootstrap.Directory](c.launcher); ok {
		out = &directory{wrapped{out}, c, d}
	}
	out = newSetCalls(wrapped{out}, c)
	if r, ok := framework.As[bootstrap.Reporter](c.launcher); ok {
		out = &reporter{wrapped{out}, c, r}
	}
	if m, ok := framework.As[bootstrap.NodeMapper](c.launcher); ok {
		out = &nodes{wrapped{out}, c, m}
	}
	if c.exchange != nil && c.exchange.RequiresAllProcesses() {
		out = &bystander{wrapped{out}, c}
	}
	return out
}

// wrapped adds one optional interface to a client.
type wrapped struct{ bootstrap.Client }

// Unwrap returns the client for framework.As.
func (w wrapped) Unwrap() any { return w.Client }

// within calls the launcher with a context that ends with ctx, with the client, and at its
// deadline. It checks the sizes of name and value.
func (c *client) within(ctx context.Context, op, name string, value []byte, call func(context.Context) error) error {
	err := wire.CheckSizes(name, value, bootstrap.MaxValue)
	if err == nil {
		err = context.Cause(ctx)
	}
	if err == nil && c.ctx.Err() != nil {
		return closedError(op)
	}
	if err == nil {
		ctx, cancel := context.WithCancelCause(ctx)
		stop := context.AfterFunc(c.ctx, func() { cancel(closedError("Close during the call")) })
		late := time.AfterFunc(c.timeouts.call, func() { cancel(fmt.Errorf("%w (after %v)", framework.ErrTimeout, c.timeouts.call)) })
		err = call(ctx)
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		late.Stop()
		stop()
		cancel(nil)
	}
	if err != nil {
		return join.OpError(op, name, err)
	}
	return nil
}

// directory is the launcher's name service, with a Lookup that waits.
type directory struct {
	wrapped
	c *client
	d bootstrap.Directory
}

func (d *directory) Publish(ctx context.Context, name string, value []byte) error {
	return d.c.within(ctx, "publish", name, value, func(ctx context.Context) error { return d.d.Publish(ctx, name, value) })
}

func (d *directory) Unpublish(ctx context.Context, name string) error {
	return d.c.within(ctx, "unpublish", name, nil, func(ctx context.Context) error { return d.d.Unpublish(ctx, name) })
}

func (d *directory) Lookup(ctx context.Context, name string, wait bool) (value []byte, ok bool, err error) {
	err = d.c.within(ctx, "lookup", name, nil, func(ctx context.Context) error {
		for pause := firstPause; ; pause = min(2*pause, maxPause) {
			var err error
			if value, ok, err = d.d.Lookup(ctx, name, false); err != nil || ok || !wait {
				return err
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	return value, ok && err == nil, err
}

// reporter sends reports to the launcher.
type reporter struct {
	wrapped
	c *client
	r bootstrap.Reporter
}

func (r *reporter) Report(ctx context.Context, name string, body []byte) error {
	return r.c.within(ctx, "report", name, body, func(ctx context.Context) error { return r.r.Report(ctx, name, body) })
}

// nodes has the launcher's map of the nodes.
type nodes struct {
	wrapped
	c *client
	m bootstrap.NodeMapper
}

func (n *nodes) NodeMap(ctx context.Context) (m bootstrap.NodeMap, err error) {
	err = n.c.within(ctx, "map of the nodes", "", nil, func(ctx context.Context) (err error) {
		m, err = n.m.NodeMap(ctx)
		return err
	})
	return m, err
}
