package mem

import (
	"context"
	"testing"
)

func TestWithin_Edges_AreExact(t *testing.T) {
	all := make([]byte, 100)
	outer := all[20:60:60]
	for _, c := range []struct {
		from, to int
		want     bool
	}{{20, 60, true}, {20, 21, true}, {59, 60, true}, {30, 30, true}, {19, 30, false}, {59, 61, false}, {60, 61, false}, {0, 10, false}, {70, 80, false}, {0, 100, false}} {
		if got := Within(outer, all[c.from:c.to]); got != c.want {
			t.Errorf("[%d:%d] in [20:60]: %v", c.from, c.to, got)
		}
	}
	if Within(nil, outer) {
		t.Error("a nil slice contains memory")
	}
}

// With another layout of interface values in Go, a context that ends would be mistaken for one that
// never ends.
func TestContextType_DifferentTypes_Differ(t *testing.T) {
	kinds := []context.Context{nil, context.Background(), context.TODO(), t.Context(), context.WithValue(t.Context(), t, 1)}
	others := []context.Context{nil, context.Background(), context.TODO(), nil, context.WithValue(context.TODO(), t, 2)}
	var stop context.CancelFunc
	others[3], stop = context.WithCancel(context.TODO())
	defer stop()
	for i, a := range kinds {
		for j, b := range others {
			if same := ContextType(a) == ContextType(b); same != (i == j) {
				t.Errorf("%T and %T: %v", a, b, same)
			}
		}
	}
}
