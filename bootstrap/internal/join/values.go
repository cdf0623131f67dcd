package join

import (
	"slices"

	"github.com/ferrympi/ferry/bootstrap/internal/wire"
)

// A ValueStore has named values, and the calls that wait for values. The zero ValueStore is empty.
type ValueStore[W Waiter] struct {
	values  map[string]Value
	waiters map[string][]W
}

// A Value is an encoded wire.ValueBody. It is encoded once, so answers share its bytes, and no
// answer holds a lock while it is encoded.
type Value []byte

// EncodeValue copies b into a Value.
func EncodeValue(b []byte) Value {
	return wire.EncodeBody(wire.ValueBody{Found: true, Value: b})
}

// Set stores v and answers the calls that wait for it.
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

// Get returns the value of name.
func (b *ValueStore[W]) Get(name string) (Value, bool) {
	v, ok := b.values[name]
	return v, ok
}

// Delete removes name. It reports whether there was a value.
func (b *ValueStore[W]) Delete(name string) bool {
	_, ok := b.values[name]
	delete(b.values, name)
	return ok
}

// Await adds w to the waiters for name. failure returns its answer if it is withdrawn.
func (b *ValueStore[W]) Await(name string, w W, failure Withdraw) {
	if b.waiters == nil {
		b.waiters = map[string][]W{}
	}
	b.waiters[name] = append(b.waiters[name], w)
	w.SetWithdraw(func(expired bool) wire.FailureBody {
		if ws := slices.DeleteFunc(b.waiters[name], func(x W) bool { return x == w }); len(ws) > 0 {
			b.waiters[name] = ws
		} else { // DropWaiters may have been called.
			delete(b.waiters, name)
		}
		return failure(expired)
	})
}

// AwaitOwner is Await for a value of process rank.
func (b *ValueStore[W]) AwaitOwner(name string, w W, rank uint32) {
	b.Await(name, w, func(expired bool) wire.FailureBody {
		code := wire.CodeWithdrawn
		if expired {
			code = wire.CodeMissing
		}
		return wire.FailureBody{Code: code, Missing: []uint32{rank}}
	})
}

// Fail answers all waiters with f.
func (b *ValueStore[W]) Fail(f wire.FailureBody) {
	waits := b.waiters
	b.waiters = nil
	for _, ws := range waits {
		for _, w := range ws {
			Fail(w, f)
		}
	}
}

// DropWaiters removes all waiters without an answer.
func (b *ValueStore[W]) DropWaiters() { b.waiters = nil }
