package explain

import (
	"context"
	"time"

	"github.com/ferrympi/ferry/mpi"
)

// mostLearn bounds --learn.
const mostLearn = 10 * time.Minute

// Messages of --learn: of each class of size, alone and in windows.
const (
	leastLearnt, mostLearnt = 64 << 10, 4 << 20
	learntWindow            = 8
)

// large exchanges large messages with everyone, for as long as rank 0 says.
func large(ctx context.Context, comm *mpi.Comm, learn time.Duration) error {
	if learn == 0 || comm.Size() == 1 {
		return nil
	}
	send, recv := make([]byte, mostLearnt), make([]byte, mostLearnt)
	end := time.Now().Add(learn)
	for more := []byte{1}; more[0] == 1; {
		for i := 1; i < comm.Size(); i++ {
			to, from := (comm.Rank()+i)%comm.Size(), (comm.Rank()-i+comm.Size())%comm.Size()
			for n := leastLearnt; n <= mostLearnt; n *= 2 {
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

// round exchanges messages of one size: some by themselves, and a window.
func round(ctx context.Context, comm *mpi.Comm, send, recv []byte, to, from int) error {
	for range learntWindow {
		if _, err := comm.Sendrecv(ctx, send, to, 1, recv, from, 1); err != nil {
			return err
		}
	}
	reqs := make([]mpi.Request, 0, 2*learntWindow)
	for range learntWindow {
		r, err := comm.Irecv(recv, from, 2)
		if err != nil {
			return err
		}
		reqs = append(reqs, r)
	}
	for range learntWindow {
		r, err := comm.Isend(send, to, 2)
		if err != nil {
			return err
		}
		reqs = append(reqs, r)
	}
	return mpi.WaitAll(ctx, reqs, nil)
}
