package join

import (
	"slices"

	"github.com/ferrympi/ferry/bootstrap/internal/wire"
)

// A Board has named values, and who waits for one that is not there yet. The zero Board
// is empty.
type Board[W Waiter] struct {
	values map[string]Value
	waits  map[string][]W
}

// A Value is an encoded wire.ValueBody. It is encoded once, when it is put: however
// many ask for a large one, none of their answers copies it, and none holds a lock for
// longer than it takes to queue it.
type Value []byte

// EncodeValue makes a Value of what was put. It copies.
func EncodeValue(b []byte) Value {
	return wire.EncodeBody(wire.ValueBody{Found: true, Value: b})
}

// Set stores v, and answers all who wait for it.
func (b *Board[W]) Set(name string, v Value) {
	if b.values == nil {
		b.values = map[string]Value{}
	}
	b.values[name] = v
	for _, w := range b.waits[name] {
		w.Done()
		w.Answer(wire.Reply, v)
	}
	delete(b.waits, name)
}

// Get returns what is under name.
func (b *Board[W]) Get(name string) (Value, bool) {
	v, ok := b.values[name]
	return v, ok
}

// Delete takes name away. It reports whether it was there.
func (b *Board[W]) Delete(name string) bool {
	_, ok := b.values[name]
	delete(b.values, name)
	return ok
}

// Await has w wait for name. If it is withdrawn, failure says with what to answer.
func (b *Board[W]) Await(name string, w W, failure Withdraw) {
	if b.waits == nil {
		b.waits = map[string][]W{}
	}
	b.waits[name] = append(b.waits[name], w)
	w.Waits(func(expired bool) wire.FailureBody {
		if ws := slices.DeleteFunc(b.waits[name], func(x W) bool { return x == w }); len(ws) > 0 {
			b.waits[name] = ws
		} else { // Forget may have been called
			delete(b.waits, name)
		}
		return failure(expired)
	})
}

// AwaitPut is Await for what rank, who has not put it yet, is to put.
func (b *Board[W]) AwaitPut(name string, w W, rank uint32) {
	b.Await(name, w, func(expired bool) wire.FailureBody {
		code := wire.CodeWithdrawn
		if expired {
			code = wire.CodeMissing
		}
		return wire.FailureBody{Code: code, Missing: []uint32{rank}}
	})
}

// Fail answers all who wait with f.
func (b *Board[W]) Fail(f wire.FailureBody) {
	waits := b.waits
	b.waits = nil
	for _, ws := range waits {
		for _, w := range ws {
			Fail(w, f)
		}
	}
}

// Forget lets nobody wait any more, and answers nobody.
func (b *Board[W]) Forget() { b.waits = nil }
