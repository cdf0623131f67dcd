package wireup

import (
	"errors"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

// chooseAmong chooses among the lists of all members.
func chooseAmong(t *testing.T, lists [][]pml.Capabilities) (pml.Capabilities, error) {
	t.Helper()
	var capabilities []Capability
	for rank, list := range lists {
		b, err := EncodeCapabilities(list)
		if err != nil {
			t.Fatal(err)
		}
		capabilities, _ = AddCapability(capabilities, Capability{EncodedList: b, MemberCount: 1, LowestRanks: []uint32{uint32(rank)}})
	}
	offer, _, err := Choose(capabilities, name)
	return offer, err
}

func TestChoose_Lists_DecideTheCommonPML(t *testing.T) {
	ob1, cm, cm2 := pml.Capabilities{PML: "ob1", Version: 1}, pml.Capabilities{PML: "cm", Version: 1, Detail: "ofi"}, pml.Capabilities{PML: "cm", Version: 2, Detail: "ofi"}
	preferred := ob1
	preferred.Priority = 99
	for name, c := range map[string]struct {
		lists [][]pml.Capabilities
		want  string
	}{
		"all have both, two prefer cm":     {[][]pml.Capabilities{{ob1, cm}, {cm, ob1}, {cm, ob1}}, "cm"},
		"one lacks cm":                     {[][]pml.Capabilities{{cm, ob1}, {cm, ob1}, {ob1}}, "ob1"},
		"priorities are local":             {[][]pml.Capabilities{{preferred}, {ob1}, {ob1}}, "ob1"},
		"a draw goes to the name":          {[][]pml.Capabilities{{ob1, cm}, {cm, ob1}}, "cm"},
		"another version is another offer": {[][]pml.Capabilities{{cm, ob1}, {cm2, ob1}, {cm2, ob1}}, "ob1"},
	} {
		for first := range c.lists { // Any list may be the first one.
			lists := append(append([][]pml.Capabilities(nil), c.lists[first:]...), c.lists[:first]...)
			if got, err := chooseAmong(t, lists); err != nil || got.PML != c.want {
				t.Errorf("%s: %v, %v", name, got.PML, err)
			}
		}
	}
	_, err := chooseAmong(t, [][]pml.Capabilities{{ob1}, {cm}, {ob1}})
	if !errors.Is(err, framework.ErrUnsupported) || !strings.Contains(err.Error(), "rank 0, rank 2") ||
		!strings.Contains(err.Error(), "rank 1") || !strings.Contains(err.Error(), "ofi") {
		t.Errorf("none in common: %v", err)
	}
}

// Members without a common network use a PML that both have. Without one, the error names both sides.
func TestChoose_ProvidersDiffer_TakesCommonPML(t *testing.T) {
	over := func(provider string) pml.Capabilities {
		return pml.Capabilities{PML: "cm", Version: 1, Detail: "mtl ofi: " + provider}
	}
	ob1 := pml.Capabilities{PML: "ob1", Version: 1}
	lists := [][]pml.Capabilities{{over("tcp;ofi_rxm"), ob1}, {over("sockets"), ob1}}
	if got, err := chooseAmong(t, lists); err != nil || got != ob1 {
		t.Errorf("%+v %v, want the common one", got, err)
	}
	if got, err := chooseAmong(t, [][]pml.Capabilities{lists[0], {ob1, over("tcp;ofi_rxm")}}); err != nil || got != over("tcp;ofi_rxm") {
		t.Errorf("%+v %v, want the least sum", got, err)
	}
	_, err := chooseAmong(t, [][]pml.Capabilities{{over("tcp;ofi_rxm")}, {over("sockets")}})
	if !errors.Is(err, framework.ErrUnsupported) {
		t.Fatal(err)
	}
	for _, want := range []string{"tcp;ofi_rxm", "sockets", "rank 0", "rank 1"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
}

func TestChoose_Garbage_NamesMember(t *testing.T) {
	_, _, err := Choose([]Capability{{EncodedList: []byte{0x60}, MemberCount: 1, LowestRanks: []uint32{4}}}, name)
	if !errors.Is(err, framework.ErrTransport) || !strings.Contains(err.Error(), "rank 4") {
		t.Error(err)
	}
}
