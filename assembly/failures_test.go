package assembly

import (
	"slices"
	"testing"

	"github.com/ferrympi/ferry/framework"
)

func TestDeaths_RepeatedAndRemoved_KeepTheirOrder(t *testing.T) {
	var d failureList
	life := func(id uint64) framework.Life { return framework.Life{ID: framework.ProcID(id), Nonce: id} }
	for _, id := range []uint64{5, 3, 9, 3, 5, 1} {
		d.add(life(id), "first")
		d.add(life(id), "second")
	}
	d.remove(life(3))
	d.remove(life(7))
	want := failureList{{life(5), "first"}, {life(9), "first"}, {life(1), "first"}}
	if !slices.Equal(d, want) {
		t.Errorf("deaths are %v, want %v", d, want)
	}
}
