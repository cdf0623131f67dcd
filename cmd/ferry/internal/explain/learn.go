package explain

import (
	"context"
	"time"

	"github.com/ferrympi/ferry/mpi"
)

// maxLearn bounds --learn.
const maxLearn = 10 * time.Minute

// Sizes and windows of the messages of --learn.
const (
	minMessage, maxMessage = 64 << 10, 4 << 20
	messageWindow          = 8
)

// large exchanges large messages among all ranks, until rank 0 ends it after the time learn.
func large(ctx context.Context, comm *mpi.Comm, learn time.Duration) error {
	if learn == 0 || comm.Size() == 1 {
		return nil
	}
	send, recv := make([]byte, maxMessage), make([]byte, maxMessage)
	end := time.Now().Add(learn)
	for more := []byte{1}; more[0] == 1; {
		for i := 1; i < comm.Size(); i++ {
			to, from := (comm.Rank()+i)%comm.Size(), (comm.Rank()-i+comm.Size())%comm.Size()
			for n := minMessage; n <= maxMessage; n *= 2 {
				if err := round(ctx, comm, send[:n], recv[:n], to, from); err != nil {
					return err
				}
			}
		}
		if time.Now().After(end) {
			more[0] = 0
		}
		if err := mpi.Bcast(ctx, comm, more, 0); err != nil {
			return err
		}
	}
	return nil
}

// round exchanges single messages of one size, and then a window of them.
func round(ctx context.Context, comm *mpi.Comm, send, recv []byte, to, from int) error {
	for range messageWindow {
		if _, err := comm.Sendrecv(ctx, send, to, 1, recv, from, 1); err != nil {
			return err
		}
	}
	reqs := make([]mpi.Request, 0, 2*messageWindow)
	for range messageWindow {
		r, err := comm.Irecv(recv, from, 2)
		if err != nil {
			return err
		}
		reqs = append(reqs, r)
	}
	for range messageWindow {
		r, err := comm.Isend(send, to, 2)
		if err != nil {
			return err
		}
		reqs = append(reqs, r)
	}
	return mpi.WaitAll(ctx, reqs, nil)
}
