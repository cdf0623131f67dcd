package sets

import (
	"fmt"

	"github.com/ferrympi/ferry/bootstrap/internal/join"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
)

// A Request is a decoded call of a process, to be made under the table's lock.
type Request[W join.Waiter] func(t *Table[W], w W, rank uint32)

// Parse decodes the operation inside a Change message. An error means that it is malformed.
func Parse[W join.Waiter](b wire.ChangeBody) (Request[W], error) {
	switch b.Op {
	case wire.Operate:
		return parse(b, (*Table[W]).Operate)
	case wire.Delete:
		return parse(b, func(t *Table[W], w W, rank uint32, a wire.NameBody) { t.Delete(w, rank, a.Name) })
	case wire.Query:
		return parse(b, (*Table[W]).Query)
	case wire.Integrate:
		return parse(b, (*Table[W]).Integrate)
	case wire.Finish:
		return parse(b, func(t *Table[W], w W, rank uint32, a wire.NameBody) { t.Finish(w, rank, a.Name) })
	case wire.SetData:
		return parse(b, (*Table[W]).SetData)
	case wire.GetData:
		return parse(b, (*Table[W]).GetData)
	case wire.ListSets:
		return parse(b, func(t *Table[W], w W, rank uint32, _ wire.Empty) { t.Psets(w, rank) })
	case wire.DescribeSet:
		return parse(b, func(t *Table[W], w W, rank uint32, a wire.NameBody) { t.Pset(w, rank, a.Name) })
	}
	return nil, fmt.Errorf("operation %d on process sets is unknown", b.Op)
}

func parse[W join.Waiter, A any](b wire.ChangeBody, f func(*Table[W], W, uint32, A)) (Request[W], error) {
	args, err := wire.Decode[A](b.Args)
	if err != nil {
		return nil, err
	}
	return func(t *Table[W], w W, rank uint32) { f(t, w, rank, args) }, nil
}
