package bootstraptest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/bootstraptest"
	"github.com/ferrympi/ferry/bootstrap/local"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// brokenClient is a singleton that violates one promise. Unwrap provides the optional interfaces,
// which the embedded interface hides.
type brokenClient struct {
	bootstrap.Client
	put       func(c bootstrap.Client, ctx context.Context, key string, v []byte) error
	get       func(c bootstrap.Client, ctx context.Context, p framework.Proc, key string) ([]byte, error)
	construct func(c bootstrap.Client, ctx context.Context, g []framework.Proc, tag string, p []byte) (bootstrap.Constructed, error)
	close     func(c bootstrap.Client) error
}

func (b *brokenClient) Unwrap() any { return b.Client }

func (b *brokenClient) Put(ctx context.Context, key string, v []byte) error {
	if b.put != nil {
		return b.put(b.Client, ctx, key, v)
	}
	return b.Client.Put(ctx, key, v)
}

func (b *brokenClient) Get(ctx context.Context, p framework.Proc, key string) ([]byte, error) {
	if b.get != nil {
		return b.get(b.Client, ctx, p, key)
	}
	return b.Client.Get(ctx, p, key)
}

func (b *brokenClient) Construct(ctx context.Context, g []framework.Proc, tag string, p []byte) (bootstrap.Constructed, error) {
	if b.construct != nil {
		return b.construct(b.Client, ctx, g, tag, p)
	}
	return b.Client.Construct(ctx, g, tag, p)
}

func (b *brokenClient) Close() error {
	if b.close != nil {
		return b.close(b.Client)
	}
	return b.Client.Close()
}

// factory starts singletons with the violation of b.
func factory(b brokenClient) bootstraptest.Factory {
	return func(ctx context.Context, want bootstraptest.Want) (*bootstraptest.Job, error) {
		if want.Size > 1 {
			return nil, fmt.Errorf("a singleton is alone: %w", bootstraptest.ErrSkip)
		}
		c, err := local.Component().Open(ctx, bootstrap.Env{Params: new(local.Params), Timeout: want.Timeout})
		if err != nil {
			return nil, err
		}
		one := b
		one.Client = c
		return &bootstraptest.Job{Clients: []bootstrap.Client{&one}, Close: func() error {
			if err := c.Close(); !errors.Is(err, framework.ErrClosed) {
				return err
			}
			return nil
		}}, nil
	}
}

func TestKit_CorrectClient_Passes(t *testing.T) {
	for _, err := range bootstraptest.Cases(factory(brokenClient{})).Check(t.Context()) {
		t.Error(err)
	}
}

func TestKit_BrokenClient_Fails(t *testing.T) {
	first := map[string][]byte{}
	for want, b := range map[string]brokenClient{
		"SingleProcess": {construct: func(c bootstrap.Client, ctx context.Context, g []framework.Proc, tag string, p []byte) (bootstrap.Constructed, error) {
			got, err := c.Construct(ctx, g, tag, p)
			got.ContextID = 5 // The same id for all constructs.
			return got, err
		}},
		"PutCopiesAndReplaces": {put: func(c bootstrap.Client, ctx context.Context, key string, v []byte) error {
			if old, ok := first[key]; ok {
				v = old // The first value stays.
			}
			first[key] = bytes.Clone(v)
			return c.Put(ctx, key, v)
		}},
		"GetNamesMissingOwner": {get: func(c bootstrap.Client, ctx context.Context, p framework.Proc, key string) ([]byte, error) {
			v, err := c.Get(ctx, p, key)
			if errors.Is(err, framework.ErrTimeout) {
				err = framework.ErrTimeout // Without the names.
			}
			return v, err
		}},
		"UseAfterClose": {close: func(c bootstrap.Client) error {
			if err := c.Close(); !errors.Is(err, framework.ErrClosed) {
				return err
			}
			return nil // The second time, too.
		}},
	} {
		errs := bootstraptest.Cases(factory(b)).Check(t.Context())
		if len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), want+":") {
			t.Errorf("want one error of case %s, got %v", want, errs)
		}
	}
}

// zeroIdentityClient is a client with an Identity of zeros.
type zeroIdentityClient struct{ bootstrap.Client }

func (zeroIdentityClient) Identity() bootstrap.Identity { return bootstrap.Identity{} }

func TestKit_ClientMissingOrWithoutIdentity_ReturnsErrConfig(t *testing.T) {
	for rule, change := range map[string]func(bootstrap.Client) bootstrap.Client{
		"neither a module": func(bootstrap.Client) bootstrap.Client { return nil },
		"no namespace":     func(c bootstrap.Client) bootstrap.Client { return zeroIdentityClient{c} },
	} {
		one, _ := bootstraptest.Cases(func(ctx context.Context, want bootstraptest.Want) (*bootstraptest.Job, error) {
			j, err := factory(brokenClient{})(ctx, want)
			if err == nil {
				j.Clients[0] = change(j.Clients[0])
			}
			return j, err
		}).Named("PutCopiesAndReplaces")
		errs := kittest.Cases{one}.Check(t.Context())
		if len(errs) != 1 || !errors.Is(errs[0], framework.ErrConfig) || !strings.Contains(errs[0].Error(), rule) {
			t.Errorf("%v, want one ErrConfig with %q", errs, rule)
		}
	}
}
