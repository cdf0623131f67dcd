package base

import "github.com/ferrympi/ferry/mtl"

// Results holds the results of operations that ended without a completion of the library. The next Poll delivers them.
type Results struct {
	pendingResults []queuedResult
	// deliveringResults is the second buffer of pendingResults. Only Deliver uses it.
	deliveringResults []queuedResult
}

type queuedResult struct {
	op     *mtl.Op
	result mtl.Result
}

// IsEmpty reports whether Deliver has no result.
func (r *Results) IsEmpty() bool { return len(r.pendingResults) == 0 }

// Deliver notifies the owners in the order of the results, and returns their number. Results that the owners cause remain for the next
// call.
func (r *Results) Deliver() int {
	r.pendingResults, r.deliveringResults = r.deliveringResults[:0], r.pendingResults
	for _, e := range r.deliveringResults {
		Notify(e.op, e.result)
	}
	n := len(r.deliveringResults)
	clear(r.deliveringResults)
	return n
}

// Notify sets the result of an operation and notifies its owner. It assigns the fields one by one, because a copy of the
// struct would wait for the stores of its fields. op may be nil.
func Notify(op *mtl.Op, r mtl.Result) {
	if op == nil {
		return
	}
	to := &op.Result
	to.Source, to.Tag, to.Found, to.Canceled, to.Bytes, to.Err = r.Source, r.Tag, r.Found, r.Canceled, r.Bytes, r.Err
	op.Owner.Done(op)
}
