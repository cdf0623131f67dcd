package pmltest

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

// opens is a PML with an Open that returns this module and no error.
type opens struct{ module pml.Module }

func (opens) Info() framework.Info                                { return framework.Info{Kind: framework.PML, Name: "breach"} }
func (opens) Params() any                                         { return nil }
func (opens) Probe(context.Context, any) framework.Verdict        { return framework.Usable() }
func (o opens) Open(context.Context, pml.Env) (pml.Module, error) { return o.module, nil }

// withoutCaps is a module with zero Caps.
type withoutCaps struct{ pml.Module }

func (withoutCaps) Caps() pml.Caps { return pml.Caps{} }
func (withoutCaps) Close() error   { return nil }

func TestKit_ModuleMissingOrWithoutCaps_ReturnsErrConfig(t *testing.T) {
	for rule, module := range map[string]pml.Module{"neither a module": nil, "Caps.TagMax is 0": withoutCaps{}} {
		errs := Cases(Stack{PML: opens{module}}, cid.PolicyAgree)[:1].Check(t.Context())
		if len(errs) != 1 || !errors.Is(errs[0], framework.ErrConfig) || !strings.Contains(errs[0].Error(), rule) {
			t.Errorf("%v, want one ErrConfig with %q", errs, rule)
		}
	}
}
