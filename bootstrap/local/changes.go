package local

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/join"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/framework"
)

// An endpoint makes calls, over the connection of a client or in the memory of a singleton.
type endpoint interface {
	// roundTrip makes a request and waits for its answer. At the end of ctx or of timeout, if that
	// is not 0, it withdraws the request. The answer to that still counts, because it may name the
	// missing members or report success, and waitErr is then the reason for the end of the wait. On
	// an error of the connection waitErr is nil.
	roundTrip(ctx context.Context, k wire.Kind, body any, timeout time.Duration) (m wire.Message, waitErr, err error)
	// failureError returns the error for a Failure of the call op with name.
	failureError(op, name string, m wire.Message, waitErr error) error
}

// request makes a call and decodes its answer.
func request[A any](ctx context.Context, e endpoint, op, name string, k wire.Kind, body any, timeout time.Duration) (a A, err error) {
	m, waitErr, err := e.roundTrip(ctx, k, body, timeout)
	if err != nil {
		if waitErr != nil {
			err = fmt.Errorf("%w: %w", waitErr, err)
		}
		return a, join.OpError(op, name, err)
	}
	if m.Kind == wire.Failure {
		return a, e.failureError(op, name, m, waitErr)
	}
	if a, err = wire.Decode[A](m.Body); err != nil {
		return a, launcherError(op, err)
	}
	return a, nil
}

// changes implements bootstrap.PsetSource and bootstrap.Changer over an endpoint.
type changes struct {
	endpoint endpoint
	identity *bootstrap.Identity
	timeout  time.Duration
}

// change makes a call of bootstrap.Changer.
func change[A any](ctx context.Context, c *changes, op, name string, k wire.ChangeOp, args any, timeout time.Duration) (a A, err error) {
	body, err := wire.EncodeChange(k, args)
	if err != nil {
		return a, join.OpError(op, name, err)
	}
	return request[A](ctx, c.endpoint, op, name, wire.Change, body, timeout)
}

// resolve returns the name of a set for the launcher's table, which has no sets of nodes. A set of all
// processes is mpi://WORLD.
func (c *changes) resolve(name string) (string, error) {
	if !strings.EqualFold(name, bootstrap.PsetShared) && !strings.EqualFold(name, bootstrap.PsetRoots) {
		return name, nil
	}
	if info, _, err := bootstrap.BuiltinPset(*c.identity, name); err == nil && info.Members.Len() == c.identity.Size {
		return bootstrap.PsetWorld, nil
	}
	return "", fmt.Errorf("%w: %s as an operand: use a set that the launcher knows, such as one of ferry run --pset", framework.ErrUnsupported, name)
}

// Psets implements bootstrap.PsetSource.
func (c *changes) Psets(ctx context.Context) ([]string, error) {
	b, err := request[wire.NamesBody](ctx, c.endpoint, "psets", "", wire.Psets, wire.Empty{}, c.timeout)
	return b.Names, err
}

// Pset implements bootstrap.PsetSource.
func (c *changes) Pset(ctx context.Context, name string) (bootstrap.PsetInfo, error) {
	b, err := request[wire.PsetBody](ctx, c.endpoint, "pset", name, wire.Pset, wire.NameBody{Name: name}, c.timeout)
	return bootstrap.PsetInfo{Name: b.Name, Members: framework.ProcsOfRanks(c.identity.Proc.Namespace, b.Ranks), Dynamic: b.Dynamic}, err
}

// Operate implements bootstrap.Changer.
func (c *changes) Operate(ctx context.Context, op bootstrap.PsetOp, psets []string, args bootstrap.PsetArgs) ([]string, error) {
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
	b, err := change[wire.NamesBody](ctx, c, op.String(), strings.Join(psets[:min(len(psets), 4)], ", "), wire.Operate, body, c.timeout)
	return b.Names, err
}

// DeletePset implements bootstrap.Changer.
func (c *changes) DeletePset(ctx context.Context, name string) error {
	_, err := change[wire.Empty](ctx, c, "delete process set", name, wire.Delete, wire.NameBody{Name: name}, c.timeout)
	return err
}

// Query implements bootstrap.Changer.
func (c *changes) Query(ctx context.Context, pset string, wait bool) (bootstrap.Change, bool, error) {
	const op = "query for a change of"
	name, err := c.resolve(pset)
	if err != nil {
		return bootstrap.Change{}, false, join.OpError(op, pset, err)
	}
	timeout := c.timeout
	if wait {
		timeout = 0
	}
	b, err := change[wire.QueriedBody](ctx, c, op, pset, wire.Query, wire.LookupBody{Name: name, Wait: wait}, timeout)
	return bootstrap.Change{Type: bootstrap.ChangeType(b.Type), Delta: b.Delta, Main: b.Main, Included: b.Included}, b.Found, err
}

// Integrate implements bootstrap.Changer.
func (c *changes) Integrate(ctx context.Context, delta, provide string) (bootstrap.Integration, error) {
	b, err := change[wire.IntegratedBody](ctx, c, "integrate", delta, wire.Integrate, wire.IntegrateBody{Delta: delta, Provide: provide}, c.timeout)
	return bootstrap.Integration{Pset: b.Pset, Terminate: b.Terminate}, err
}

// FinishChange implements bootstrap.Changer.
func (c *changes) FinishChange(ctx context.Context, delta string) error {
	_, err := change[wire.Empty](ctx, c, "finish change", delta, wire.Finish, wire.NameBody{Name: delta}, c.timeout)
	return err
}

// PublishData implements bootstrap.Changer.
func (c *changes) PublishData(ctx context.Context, pset, key string, value []byte) error {
	const op = "publish data of"
	name, err := c.resolve(pset)
	if err != nil {
		return join.OpError(op, pset, err)
	}
	_, err = change[wire.Empty](ctx, c, op, pset, wire.SetData, wire.DataBody{Pset: name, Key: key, Value: value}, c.timeout)
	return err
}

// LookupData implements bootstrap.Changer.
func (c *changes) LookupData(ctx context.Context, pset, key string) ([]byte, error) {
	const op = "look up data of"
	name, err := c.resolve(pset)
	if err != nil {
		return nil, join.OpError(op, pset, err)
	}
	b, err := change[wire.ValueBody](ctx, c, op, pset, wire.GetData, wire.KeyBody{Pset: name, Key: key}, c.timeout)
	return b.Value, err
}
