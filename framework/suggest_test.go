package framework

import (
	"errors"
	"fmt"
	"testing"
)

// network is a component that users look for as infiniband.
type network struct{ fake }

func (network) Suggest(word string) string {
	if word == "infiniband" {
		return "mtl=net with mtl.net.provider=verbs"
	}
	return ""
}

func TestSelect_NameOfAnotherFrameworkOrNetwork_IsSuggested(t *testing.T) {
	r := example()
	r.Register(network{comp(MTL, "net", 5)})
	for name, want := range map[string]string{
		"net":        "did you mean mtl=net?",
		"InfiniBand": "did you mean mtl=net with mtl.net.provider=verbs?",
		"ob1":        "did you mean pml=ob1?",
		"smh":        "the nearest known name is shm",
	} {
		_, err := r.Select(t.Context(), BTL, set(t, defaults(t, r), "btl", name))
		wantError(t, err, ErrConfig, fmt.Sprintf("unknown btl component %q", name), want)
	}
}

func TestSelect_NameOfATransportAndACollective_SuggestsTheTransport(t *testing.T) {
	r := example()
	r.Register(comp(Coll, "shm", 5))
	r.Register(comp(Coll, "tuned", 5))
	for name, want := range map[string]string{"shm": "did you mean btl=shm? ", "tuned": "did you mean coll=tuned? "} {
		_, err := r.Select(t.Context(), PML, set(t, defaults(t, r), "pml", name))
		wantError(t, err, ErrConfig, fmt.Sprintf("unknown pml component %q; %s", name, want))
	}
	_, err := r.Select(t.Context(), Coll, set(t, defaults(t, r), "coll", "ob1"))
	wantError(t, err, ErrConfig, "did you mean pml=ob1?")
}

func TestFail_CauseIsARequestOfAnotherFramework_IsReportedOnce(t *testing.T) {
	r := example()
	cause := errors.New("no device")
	inner := pick(t, r, BTL, set(t, defaults(t, r), "btl", "shm")).Fail("shm", fmt.Errorf("btl shm: %w: %w", ErrConfig, cause))
	if want := "configuration: btl=shm (flag --set): shm failed: no device"; inner == nil || inner.Error() != want {
		t.Fatalf("%v, want %s", inner, want)
	}
	outer := pick(t, r, PML, set(t, defaults(t, r), "pml", "ob1")).Fail("ob1", fmt.Errorf("pml ob1: %w", inner))
	if outer == nil || outer.Error() != inner.Error() || !errors.Is(outer, cause) || !errors.Is(outer, ErrConfig) {
		t.Errorf("%v, want %v", outer, inner)
	}
}
