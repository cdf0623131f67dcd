package jobtest

import (
	"bytes"
	"context"
	"slices"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
)

// Optional interfaces, as hello names them.
const (
	featureDirectory   = "directory"
	featurePsets       = "psets"
	featureEvents      = "events"
	featureNotes       = "notes"
	featureRevocations = "revocations"
	featureChanges     = "changes"
)

func featuresOf(c bootstrap.Client) (all []string) {
	if _, ok := framework.As[bootstrap.Directory](c); ok {
		all = append(all, featureDirectory)
	}
	if _, ok := framework.As[bootstrap.PsetSource](c); ok {
		all = append(all, featurePsets)
	}
	if _, ok := framework.As[bootstrap.EventSource](c); ok {
		all = append(all, featureEvents)
	}
	if _, ok := framework.As[bootstrap.Noter](c); ok {
		all = append(all, featureNotes)
	}
	if _, ok := framework.As[bootstrap.Revoker](c); ok {
		all = append(all, featureRevocations)
	}
	if _, ok := framework.As[bootstrap.Changer](c); ok {
		all = append(all, featureChanges)
	}
	return all
}

// client returns a client for the kit, with the optional interfaces of the process's client.
func (r *rank) client() bootstrap.Client {
	var out bootstrap.Client = remote{r}
	if slices.Contains(r.features, featureDirectory) {
		out = struct {
			wrapped
			directory
		}{wrapped{out}, directory{r}}
	}
	if slices.Contains(r.features, featurePsets) {
		out = struct {
			wrapped
			psets
		}{wrapped{out}, psets{r}}
	}
	if slices.Contains(r.features, featureEvents) {
		out = struct {
			wrapped
			events
		}{wrapped{out}, events{r}}
	}
	if slices.Contains(r.features, featureNotes) {
		out = struct {
			wrapped
			notes
		}{wrapped{out}, notes{r}}
	}
	if slices.Contains(r.features, featureRevocations) {
		out = struct {
			wrapped
			revocations
		}{wrapped{out}, revocations{r}}
	}
	if slices.Contains(r.features, featureChanges) {
		out = struct {
			wrapped
			changes
		}{wrapped{out}, changes{r}}
	}
	return out
}

// wrapped adds one optional interface to a client.
type wrapped struct{ bootstrap.Client }

// Unwrap returns the client for framework.As.
func (w wrapped) Unwrap() any { return w.Client }

// remote is a client that forwards calls to the process.
type remote struct{ r *rank }

func (c remote) Identity() bootstrap.Identity {
	id := c.r.id
	id.LocalRanks = slices.Clone(id.LocalRanks)
	return id
}

func (c remote) Put(ctx context.Context, key string, value []byte) error {
	_, err := c.r.call(ctx, request{Op: opPut, Name: key, Value: value})
	return err
}

func (c remote) Get(ctx context.Context, p framework.Proc, key string) ([]byte, error) {
	got, err := c.r.call(ctx, request{Op: opGet, Proc: p, Name: key})
	return got.Value, err
}

func (c remote) Fence(ctx context.Context, group []framework.Proc, tag string) error {
	_, err := c.r.call(ctx, request{Op: opFence, Group: group, Name: tag, Timeout: bootstrap.Timeout(ctx, 0)})
	return err
}

func (c remote) Construct(ctx context.Context, group []framework.Proc, tag string, payload []byte) (bootstrap.Constructed, error) {
	got, err := c.r.call(ctx, request{Op: opConstruct, Group: group, Name: tag, Value: payload, Timeout: bootstrap.Timeout(ctx, 0)})
	return bootstrap.Constructed{ContextID: got.ContextID, Payloads: got.Payloads}, err
}

func (c remote) Close() error {
	_, err := c.r.call(context.Background(), request{Op: opClose})
	return err
}

type directory struct{ r *rank }

func (d directory) Publish(ctx context.Context, name string, value []byte) error {
	_, err := d.r.call(ctx, request{Op: opPublish, Name: name, Value: bytes.Clone(value)})
	return err
}

func (d directory) Unpublish(ctx context.Context, name string) error {
	_, err := d.r.call(ctx, request{Op: opUnpublish, Name: name})
	return err
}

func (d directory) Lookup(ctx context.Context, name string, wait bool) ([]byte, bool, error) {
	got, err := d.r.call(ctx, request{Op: opLookup, Name: name, MustWait: wait})
	return got.Value, got.IsFound, err
}

type psets struct{ r *rank }

func (p psets) Psets(ctx context.Context) ([]string, error) {
	got, err := p.r.call(ctx, request{Op: opPsets})
	return got.Names, err
}

func (p psets) Pset(ctx context.Context, name string) (bootstrap.PsetInfo, error) {
	got, err := p.r.call(ctx, request{Op: opPset, Name: name})
	return bootstrap.PsetInfo{Name: got.PsetReply.Name, Members: framework.ProcsOf(got.PsetReply.Members...), Dynamic: got.PsetReply.IsDynamic}, err
}

// events forwards the calls of an EventSource, and returns once the process has made them. It
// ignores the end of the process.
type events struct{ r *rank }

func (e events) callAndIgnore(q request) { e.r.call(context.Background(), q) }

func (e events) BeginIncarnation(nonce uint64) { e.callAndIgnore(request{Op: opBegin, Nonce: nonce}) }
func (e events) EndIncarnation()               { e.callAndIgnore(request{Op: opEnd}) }

func (e events) Disconnect(p framework.Proc, nonce uint64, reason string) {
	e.callAndIgnore(request{Op: opDisconnect, Proc: p, Nonce: nonce, Name: reason})
}

func (e events) ReportBroken(comm cid.Extended, members []framework.Proc, reason string) {
	e.callAndIgnore(request{Op: opBroke, Comm: comm, Group: members, Name: reason})
}

// notes sends notes from the process.
type notes struct{ r *rank }

func (n notes) Note(p framework.Proc, nonce uint64, body []byte) error {
	_, err := n.r.call(context.Background(), request{Op: opNote, Proc: p, Nonce: nonce, Value: bytes.Clone(body)})
	return err
}

// revocations revokes communicators from the process.
type revocations struct{ r *rank }

func (v revocations) Revoke(comm cid.Extended, members []framework.Proc) error {
	_, err := v.r.call(context.Background(), request{Op: opRevoke, Comm: comm, Group: members})
	return err
}

func (e events) OnEvent(f func(bootstrap.Event)) {
	e.r.mu.Lock()
	e.r.onEvent = f
	e.r.mu.Unlock()
	e.callAndIgnore(request{Op: opOnEvent, IsEnabled: f != nil})
}
