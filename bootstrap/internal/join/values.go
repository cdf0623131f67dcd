package join

import (
	"slices"

	"github.com/ferrympi/ferry/bootstrap/internal/wire"
)

// A Board has named values, and who waits for one that is not there yet. The zero Board
// is empty.
type ValueStore[W Waiter] struct {
	values  map[string]Value
	waiters map[string][]W
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
func (b *ValueStore[W]) Set(name string, v Value) {
	if b.values == nil {
		b.values = map[string]Value{}
	}
	b.values[name] = v
	for _, w := range b.waiters[name] {
		w.ClearWithdraw()
		w.Answer(wire.Reply, v)
	}
	delete(b.waiters, name)
}

// Get returns what is under name.
func (b *ValueStore[W]) Get(name string) (Value, bool) {
	v, ok := b.values[name]
	return v, ok
}

// Delete takes name away. It reports whether it was there.
func (b *ValueStore[W]) Delete(name string) bool {
	_, ok := b.values[name]
	delete(b.values, name)
	return ok
}

// Await has w wait for name. If it is withdrawn, failure says with what to answer.
func (b *ValueStore[W]) Await(name string, w W, failure Withdraw) {
	if b.waiters == nil {
		b.waiters = map[string][]W{}
	}
	b.waiters[name] = append(b.waiters[name], w)
	w.SetWithdraw(func(expired bool) wire.FailureBody {
		if ws := slices.DeleteFunc(b.waiters[name], func(x W) bool { return x == w }); len(ws) > 0 {
			b.waiters[name] = ws
		} else { // Forget may have been called
			delete(b.waiters, name)
		}
		return failure(expired)
	})
}

// AwaitOwner is Await for what rank, who has not put it yet, is to put.
func (b *ValueStore[W]) AwaitOwner(name string, w W, rank uint32) {
	b.Await(name, w, func(expired bool) wire.FailureBody {
		code := wire.CodeWithdrawn
		if expired {
			code = wire.CodeMissing
		}
		return wire.FailureBody{Code: code, Missing: []uint32{rank}}
	})
}

// Fail answers all who wait with f.
func (b *ValueStore[W]) Fail(f wire.FailureBody) {
	waits := b.waiters
	b.waiters = nil
	for _, ws := range waits {
		for _, w := range ws {
			Fail(w, f)
		}
	}
}

// Forget lets nobody wait any more, and answers nobody.
func (b *ValueStore[W]) DropWaiters() { b.waiters = nil }
