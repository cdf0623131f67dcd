package local

import (
	"context"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/changer"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/framework"
)

// An endpoint makes calls, over the connection of a client or in the memory of a singleton.
type endpoint interface {
	// call makes the request of the call op with name, and returns its Reply. At the end of ctx or
	// of timeout, if that is not 0, it withdraws the request.
	call(ctx context.Context, op, name string, k wire.Kind, body any, timeout time.Duration) (wire.Message, error)
}

// request makes a call and decodes its Reply.
func request[A any](ctx context.Context, e endpoint, op, name string, k wire.Kind, body any, timeout time.Duration) (a A, err error) {
	m, err := e.call(ctx, op, name, k, body, timeout)
	if err != nil {
		return a, err
	}
	if a, err = wire.Decode[A](m.Body); err != nil {
		return a, launcherError(op, err)
	}
	return a, nil
}

// changes implements bootstrap.PsetSource and bootstrap.Changer over an endpoint.
type changes struct {
	changer.Calls
	endpoint endpoint
	timeout  time.Duration
}

func (c *changes) init(e endpoint, id *bootstrap.Identity, timeout time.Duration) {
	c.endpoint, c.timeout = e, timeout
	c.Calls = changer.Calls{Holder: holder{c}, ID: id}
}

// holder implements changer.Holder.
type holder struct{ c *changes }

func (h holder) Change(ctx context.Context, op, name string, body wire.ChangeBody, hasNoDeadline bool) (wire.Message, error) {
	timeout := h.c.timeout
	if hasNoDeadline {
		timeout = 0
	}
	return h.c.endpoint.call(ctx, op, name, wire.Change, body, timeout)
}

func (h holder) ProtocolError(op string, err error) error { return launcherError(op, err) }

// Psets implements bootstrap.PsetSource.
func (c *changes) Psets(ctx context.Context) ([]string, error) {
	b, err := request[wire.NamesBody](ctx, c.endpoint, "psets", "", wire.Psets, wire.Empty{}, c.timeout)
	return b.Names, err
}

// Pset implements bootstrap.PsetSource.
func (c *changes) Pset(ctx context.Context, name string) (bootstrap.PsetInfo, error) {
	b, err := request[wire.PsetBody](ctx, c.endpoint, "pset", name, wire.Pset, wire.NameBody{Name: name}, c.timeout)
	return bootstrap.PsetInfo{Name: b.Name, Members: framework.ProcsOfRanks(c.ID.Proc.Namespace, b.Ranks), Dynamic: b.Dynamic}, err
}
