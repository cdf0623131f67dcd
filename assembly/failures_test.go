package assembly

import (
	"slices"
	"testing"

	"github.com/ferrympi/ferry/framework"
)

func TestFailureList_RepeatedAndRemoved_KeepsItsOrder(t *testing.T) {
	var d failureList
	incarnation := func(id uint64) framework.Incarnation {
		return framework.Incarnation{ID: framework.ProcID(id), Nonce: id}
	}
	for _, id := range []uint64{5, 3, 9, 3, 5, 1} {
		d.add(incarnation(id), "first")
		d.add(incarnation(id), "second")
	}
	d.remove(incarnation(3))
	d.remove(incarnation(7))
	want := failureList{{incarnation(5), "first"}, {incarnation(9), "first"}, {incarnation(1), "first"}}
	if !slices.Equal(d, want) {
		t.Errorf("deaths are %v, want %v", d, want)
	}
}
