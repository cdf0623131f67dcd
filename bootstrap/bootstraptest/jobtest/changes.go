package jobtest

import (
	"bytes"
	"context"
	"fmt"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
)

// Methods of bootstrap.Changer in requests.
const (
	methodOperate   = "operate"
	methodDelete    = "delete"
	methodQuery     = "query"
	methodIntegrate = "integrate"
	methodFinish    = "finish"
	methodPublish   = "publish data"
	methodLookup    = "look up data"
)

// changeRequest is a call of a bootstrap.Changer.
type changeRequest struct {
	Method string
	Op     bootstrap.PsetOp
	Psets  []string
	Args   bootstrap.PsetArgs
	// Set, or delta.
	Name string
	// Key, or provided name.
	Key      string
	Value    []byte
	MustWait bool
}

// changeReply is the result of a call of a bootstrap.Changer.
type changeReply struct {
	Change      bootstrap.Change
	Integration bootstrap.Integration
}

// changes forwards the calls of a bootstrap.Changer.
type changes struct{ r *rank }

func (c changes) call(ctx context.Context, q changeRequest) (reply, error) {
	return c.r.call(ctx, request{Op: opChange, Change: q})
}

func (c changes) Operate(ctx context.Context, op bootstrap.PsetOp, psets []string, args bootstrap.PsetArgs) ([]string, error) {
	got, err := c.call(ctx, changeRequest{Method: methodOperate, Op: op, Psets: psets, Args: args})
	return got.Names, err
}

func (c changes) DeletePset(ctx context.Context, name string) error {
	_, err := c.call(ctx, changeRequest{Method: methodDelete, Name: name})
	return err
}

func (c changes) Query(ctx context.Context, pset string, wait bool) (bootstrap.Change, bool, error) {
	got, err := c.call(ctx, changeRequest{Method: methodQuery, Name: pset, MustWait: wait})
	return got.ChangeReply.Change, got.IsFound, err
}

func (c changes) Integrate(ctx context.Context, delta, provide string) (bootstrap.Integration, error) {
	got, err := c.call(ctx, changeRequest{Method: methodIntegrate, Name: delta, Key: provide})
	return got.ChangeReply.Integration, err
}

func (c changes) FinishChange(ctx context.Context, delta string) error {
	_, err := c.call(ctx, changeRequest{Method: methodFinish, Name: delta})
	return err
}

func (c changes) PublishData(ctx context.Context, pset, key string, value []byte) error {
	_, err := c.call(ctx, changeRequest{Method: methodPublish, Name: pset, Key: key, Value: bytes.Clone(value)})
	return err
}

func (c changes) LookupData(ctx context.Context, pset, key string) ([]byte, error) {
	got, err := c.call(ctx, changeRequest{Method: methodLookup, Name: pset, Key: key})
	return got.Value, err
}

// executeChange makes a call of the client's bootstrap.Changer.
func (s *rankServer) executeChange(ctx context.Context, q changeRequest) (r reply, err error) {
	c, _ := framework.As[bootstrap.Changer](s.client)
	switch q.Method {
	case methodOperate:
		r.Names, err = c.Operate(ctx, q.Op, q.Psets, q.Args)
	case methodDelete:
		err = c.DeletePset(ctx, q.Name)
	case methodQuery:
		r.ChangeReply.Change, r.IsFound, err = c.Query(ctx, q.Name, q.MustWait)
	case methodIntegrate:
		r.ChangeReply.Integration, err = c.Integrate(ctx, q.Name, q.Key)
	case methodFinish:
		err = c.FinishChange(ctx, q.Name)
	case methodPublish:
		err = c.PublishData(ctx, q.Name, q.Key, q.Value)
	case methodLookup:
		r.Value, err = c.LookupData(ctx, q.Name, q.Key)
	default:
		err = fmt.Errorf("unknown method %q", q.Method)
	}
	return r, err
}
