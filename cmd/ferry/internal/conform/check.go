package conform

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/mpi"
)

// right and left are the neighbours in a ring of all ranks; a single one is its
// own neighbour.
func (e Env) right() int { return (e.Comm.Rank() + 1) % e.Comm.Size() }
func (e Env) left() int  { return (e.Comm.Rank() + e.Comm.Size() - 1) % e.Comm.Size() }

// must turns a condition that does not hold into an error.
func must(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, args...)
}

// answers checks that err is of a class.
func answers(what string, err, class error) error {
	return must(errors.Is(err, class), "%s: error %v, want one that is %q", what, err, class)
}

// status checks a status.
func status(what string, got mpi.Status, err error, source, tag, n int) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return must(got.Source == source && got.Tag == tag && got.Bytes == n && !got.Canceled,
		"%s: %+v, want %d bytes from %d with tag %d", what, got, n, source, tag)
}

// none checks the status of what concerns no message.
func none(what string, got mpi.Status, err error) error {
	return status(what, got, err, mpi.AnySource, mpi.AnyTag, 0)
}

// null checks the status of what concerns ProcNull.
func null(what string, got mpi.Status, err error) error {
	return status(what, got, err, mpi.ProcNull, mpi.AnyTag, 0)
}

// pattern is contents that differ by sender and message.
func pattern(n, rank, message int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8*13 + rank*31 + message*101 + 1)
	}
	return b
}

func same(what string, got, want []byte) error {
	if bytes.Equal(got, want) {
		return nil
	}
	if len(got) != len(want) {
		return fmt.Errorf("%s: %d bytes, want %d", what, len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			return fmt.Errorf("%s: byte %d of %d is %#x, want %#x", what, i, len(got), got[i], want[i])
		}
	}
	return nil
}

// allgather has all ranks know every rank's number.
func allgather(ctx context.Context, c *mpi.Comm, mine int64) ([]int64, error) {
	all := make([]int64, c.Size())
	all[c.Rank()] = mine
	return all, mpi.Allreduce(ctx, c, nil, all, mpi.Sum[int64]())
}

// works shows that a communicator carries messages and collectives among its
// members, and closes it.
func works(ctx context.Context, c *mpi.Comm) error {
	n := c.Size()
	in := make([]byte, 4)
	right, left := (c.Rank()+1)%n, (c.Rank()+n-1)%n
	st, err := c.Sendrecv(ctx, pattern(4, c.Rank(), n), right, 3, in, left, 3)
	err = errors.Join(status("ring", st, err, left, 3, 4), same("ring", in, pattern(4, left, n)))
	all, gatherErr := allgather(ctx, c, int64(c.Rank()+1))
	for i, x := range all {
		err = errors.Join(err, must(x == int64(i+1), "allgather: %v", all))
	}
	return errors.Join(err, gatherErr, c.Close())
}
