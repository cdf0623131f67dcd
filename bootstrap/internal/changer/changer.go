// Package changer implements bootstrap.Changer by requests to the process that holds the sets of a
// job. This is the launcher of bootstrap/local, and rank 0 of bootstrap/mesh. It is stateless.
package changer

import (
	"context"
	"fmt"
	"strings"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/join"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/framework"
)

// A Holder makes requests to the process that holds the sets.
type Holder interface {
	// Change makes the request body of the call op with name, and waits for its Reply. Any other
	// outcome is an error of bootstrap.Changer. The deadline of the client applies unless
	// hasNoDeadline, when the wait ends with ctx or the holder.
	Change(ctx context.Context, op, name string, body wire.ChangeBody, hasNoDeadline bool) (wire.Message, error)
	// ProtocolError returns the error of the call op for a malformed Reply.
	ProtocolError(op string, err error) error
}

// Calls implements bootstrap.Changer over a Holder.
type Calls struct {
	Holder Holder
	// Identity of the client, for mpix://SHARED and mpix://ROOTS.
	ID *bootstrap.Identity
}

// Request makes one request with arguments of its operation, and decodes the Reply as A.
func Request[A any](ctx context.Context, h Holder, op, name string, k wire.ChangeOp, args any, hasNoDeadline bool) (a A, err error) {
	body, err := wire.EncodeChange(k, args)
	if err != nil {
		return a, join.OpError(op, name, err)
	}
	m, err := h.Change(ctx, op, name, body, hasNoDeadline)
	if err != nil {
		return a, err
	}
	if a, err = wire.Decode[A](m.Body); err != nil {
		return a, h.ProtocolError(op, err)
	}
	return a, nil
}

// resolve returns the name of a set for the holder, which has no sets of nodes. A set of all
// processes is mpi://WORLD.
func (c *Calls) resolve(name string) (string, error) {
	if !strings.EqualFold(name, bootstrap.PsetShared) && !strings.EqualFold(name, bootstrap.PsetRoots) {
		return name, nil
	}
	if info, _, err := bootstrap.BuiltinPset(*c.ID, name); err == nil && info.Members.Len() == c.ID.Size {
		return bootstrap.PsetWorld, nil
	}
	return "", fmt.Errorf("%w: %s as an operand: the holder of the sets has no sets of nodes: use mpi://WORLD, or a set of the launcher or of an operation", framework.ErrUnsupported, name)
}

// Operate implements bootstrap.Changer.
func (c *Calls) Operate(ctx context.Context, op bootstrap.PsetOp, psets []string, args bootstrap.PsetArgs) ([]string, error) {
	body := wire.OperateBody{Op: uint8(op), Name: args.Name, Add: int64(args.Add), Sub: int64(args.Sub), Partial: args.Partial}
	for _, name := range psets {
		known, err := c.resolve(name)
		if err != nil {
			return nil, join.OpError(op.String(), name, err)
		}
		body.Operands = append(body.Operands, known)
	}
	for _, n := range args.Sizes {
		body.Sizes = append(body.Sizes, int64(n))
	}
	b, err := Request[wire.NamesBody](ctx, c.Holder, op.String(), strings.Join(psets[:min(len(psets), 4)], ", "), wire.Operate, body, false)
	return b.Names, err
}

// DeletePset implements bootstrap.Changer.
func (c *Calls) DeletePset(ctx context.Context, name string) error {
	_, err := Request[wire.Empty](ctx, c.Holder, "delete process set", name, wire.Delete, wire.NameBody{Name: name}, false)
	return err
}

// Query implements bootstrap.Changer.
func (c *Calls) Query(ctx context.Context, pset string, wait bool) (bootstrap.Change, bool, error) {
	const op = "query for a change of"
	name, err := c.resolve(pset)
	if err != nil {
		return bootstrap.Change{}, false, join.OpError(op, pset, err)
	}
	b, err := Request[wire.QueriedBody](ctx, c.Holder, op, pset, wire.Query, wire.LookupBody{Name: name, Wait: wait}, wait)
	return bootstrap.Change{Type: bootstrap.ChangeType(b.Type), Delta: b.Delta, Main: b.Main, Included: b.Included}, b.Found, err
}

// Integrate implements bootstrap.Changer.
func (c *Calls) Integrate(ctx context.Context, delta, provide string) (bootstrap.Integration, error) {
	b, err := Request[wire.IntegratedBody](ctx, c.Holder, "integrate", delta, wire.Integrate, wire.IntegrateBody{Delta: delta, Provide: provide}, false)
	return bootstrap.Integration{Pset: b.Pset, Terminate: b.Terminate}, err
}

// FinishChange implements bootstrap.Changer.
func (c *Calls) FinishChange(ctx context.Context, delta string) error {
	_, err := Request[wire.Empty](ctx, c.Holder, "finish change", delta, wire.Finish, wire.NameBody{Name: delta}, false)
	return err
}

// PublishData implements bootstrap.Changer.
func (c *Calls) PublishData(ctx context.Context, pset, key string, value []byte) error {
	const op = "publish data of"
	name, err := c.resolve(pset)
	if err != nil {
		return join.OpError(op, pset, err)
	}
	_, err = Request[wire.Empty](ctx, c.Holder, op, pset, wire.SetData, wire.DataBody{Pset: name, Key: key, Value: value}, false)
	return err
}

// LookupData implements bootstrap.Changer.
func (c *Calls) LookupData(ctx context.Context, pset, key string) ([]byte, error) {
	const op = "look up data of"
	name, err := c.resolve(pset)
	if err != nil {
		return nil, join.OpError(op, pset, err)
	}
	b, err := Request[wire.ValueBody](ctx, c.Holder, op, pset, wire.GetData, wire.KeyBody{Pset: name, Key: key}, false)
	return b.Value, err
}
