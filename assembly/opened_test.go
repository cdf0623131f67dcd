package assembly

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/local"
	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/components"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/pml"
)

// breaching is the part that components of all kinds share. With isZero, Open returns a module
// with a description of zeros, otherwise a nil module, and with isTyped a nil pointer.
type breaching struct {
	kind            framework.Kind
	isZero, isTyped bool
}

func (b breaching) Info() framework.Info { return framework.Info{Kind: b.kind, Name: "breach"} }
func (breaching) Params() any            { return nil }
func (breaching) Probe(context.Context, any) framework.Verdict {
	return framework.Usable()
}

type (
	zeroPML       struct{ pml.Module }
	zeroMTL       struct{ mtl.Module }
	zeroBTL       struct{ btl.Module }
	zeroBootstrap struct{ bootstrap.Client }

	breachPML       struct{ breaching }
	breachMTL       struct{ breaching }
	breachBTL       struct{ breaching }
	breachBootstrap struct{ breaching }
)

func (*zeroPML) Caps() pml.Caps                     { return pml.Caps{} }
func (*zeroPML) Close() error                       { return nil }
func (*zeroMTL) Caps() mtl.Caps                     { return mtl.Caps{} }
func (*zeroMTL) Close() error                       { return nil }
func (*zeroBTL) Caps() btl.Caps                     { return btl.Caps{} }
func (*zeroBTL) Close() error                       { return nil }
func (*zeroBootstrap) Identity() bootstrap.Identity { return bootstrap.Identity{} }
func (*zeroBootstrap) Close() error                 { return nil }

// breach returns the module that a component opens.
func breach[M any, Z any](b breaching, zero *Z, none M) M {
	switch {
	case b.isZero:
		return any(zero).(M)
	case b.isTyped:
		return any((*Z)(nil)).(M)
	}
	return none
}

func (b breachPML) Open(context.Context, pml.Env) (pml.Module, error) {
	return breach[pml.Module](b.breaching, &zeroPML{}, nil), nil
}

func (b breachMTL) Open(context.Context, mtl.Env) (mtl.Module, error) {
	return breach[mtl.Module](b.breaching, &zeroMTL{}, nil), nil
}

func (b breachBTL) Open(context.Context, btl.Env) (btl.Module, error) {
	return breach[btl.Module](b.breaching, &zeroBTL{}, nil), nil
}

func (b breachBootstrap) Open(context.Context, bootstrap.Env) (bootstrap.Client, error) {
	return breach[bootstrap.Client](b.breaching, &zeroBootstrap{}, nil), nil
}

func TestOpen_ComponentBreaksItsContract_ReturnsErrConfigWithTheRule(t *testing.T) {
	for _, c := range []struct {
		kind framework.Kind
		of   func(breaching) framework.Component
		sets []framework.Setting
		zero string
	}{
		{framework.PML, func(b breaching) framework.Component { return breachPML{b} }, []framework.Setting{{Name: "pml", Value: "breach"}}, "Caps.TagMax is 0"},
		{framework.MTL, func(b breaching) framework.Component { return breachMTL{b} }, []framework.Setting{{Name: "pml", Value: "cm"}, {Name: "mtl", Value: "breach"}}, "Caps.CIDBits is 0"},
		{framework.BTL, func(b breaching) framework.Component { return breachBTL{b} }, []framework.Setting{{Name: "pml", Value: "ob1"}, {Name: "btl", Value: "self,breach"}}, "Caps.FrameLimit is 0"},
		{framework.Bootstrap, func(b breaching) framework.Component { return breachBootstrap{b} }, []framework.Setting{{Name: "bootstrap", Value: "breach"}}, "Identity.Proc has no namespace"},
	} {
		for rule, b := range map[string]breaching{
			c.zero:                    {kind: c.kind, isZero: true},
			"neither a module nor an": {kind: c.kind},
			"neither a module nor":    {kind: c.kind, isTyped: true},
		} {
			reg := components.Standard()
			reg.Register(c.of(b))
			a, err := Open(t.Context(), Options{Registry: reg, Settings: c.sets})
			if err == nil {
				err = errors.Join(errors.New("it opens"), a.Close())
			}
			if !errors.Is(err, framework.ErrConfig) || !strings.Contains(err.Error(), string(c.kind)+" breach: the component breaks its contract: ") || !strings.Contains(err.Error(), rule) {
				t.Errorf("%+v: %v, want ErrConfig with %q", b, err, rule)
			}
		}
	}
}

// emptyOffer returns an offer without algorithms.
type emptyOffer struct{ breaching }

func (emptyOffer) Query(any, coll.Shape) *coll.Offer { return &coll.Offer{} }

func TestColl_OfferWithoutAlgorithms_ReturnsErrConfig(t *testing.T) {
	client, err := local.Component().Open(t.Context(), bootstrap.Env{Params: local.Component().Params()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	reg := components.Standard()
	reg.Register(emptyOffer{breaching{kind: framework.Coll}})
	a, err := Open(t.Context(), Options{Registry: reg, Client: client, Settings: []framework.Setting{{Name: "btl", Value: "self"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if _, err := a.CollOffers(coll.Shape{Size: 2}); !errors.Is(err, framework.ErrConfig) || !strings.Contains(err.Error(), "coll breach: ") || !strings.Contains(err.Error(), "without algorithms") {
		t.Error(err)
	}
}
