package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/mpi"
)

// shmDir is where segments are, of ferry and of other MPI libraries.
const shmDir = "/dev/shm"

// memory measures the memory of ranks after a barrier and messages to the ranks at the given
// distances. Memory in /dev/shm is counted once for all its users.
func (r *rank) memory(ctx context.Context, steps ...int) error {
	if err := mpi.Barrier(ctx, r.comm); err != nil {
		return err
	}
	for _, step := range steps {
		if err := r.shift(ctx, step%r.comm.Size()); err != nil {
			return err
		}
	}
	if err := mpi.Barrier(ctx, r.comm); err != nil {
		return err
	}
	private, share, shm, err := memoryNow()
	if err != nil {
		return err
	}
	if err := mpi.Barrier(ctx, r.comm); err != nil { // The measurement itself takes memory.
		return err
	}
	of := map[string][]float64{"shm": {shm}}
	if of["private"], err = r.gather(ctx, []float64{private}); err != nil {
		return err
	}
	if of["pss"], err = r.gather(ctx, []float64{share}); err != nil || r.comm.Rank() != 0 {
		return err
	}
	for _, what := range []string{"private", "pss", "shm"} {
		if err := r.emitRow(ofValues(Row{Bench: r.o.name + "/" + what, RankCount: r.comm.Size(), Unit: "KiB"}, of[what])); err != nil {
			return err
		}
	}
	return nil
}

// memoryNow returns the memory of this process as resident does, and the use of shmDir by all processes, in KiB.
func memoryNow() (private, share, shm float64, err error) {
	if private, share, err = resident(); err != nil {
		return 0, 0, 0, err
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(shmDir, &fs); err != nil && !errors.Is(err, os.ErrNotExist) { // Without the directory, its use is 0.
		return 0, 0, 0, fmt.Errorf("use of %s: %w", shmDir, err)
	}
	return private, share, float64(fs.Blocks-fs.Bfree) * float64(fs.Bsize) / 1024, nil
}

// memoryOfNeighbours is after a message to the rank above and one to the rank below.
func (r *rank) memoryOfNeighbours(ctx context.Context) error {
	return r.memory(ctx, 1, r.comm.Size()-1)
}

// memoryOfEveryone is after a message to every rank.
func (r *rank) memoryOfEveryone(ctx context.Context) error {
	var steps []int
	for step := range r.comm.Size() {
		steps = append(steps, step)
	}
	return r.memory(ctx, steps...)
}

// shift sends 8 bytes to the rank that is so far above.
func (r *rank) shift(ctx context.Context, step int) error {
	const tag = 1
	c, n := r.comm, r.comm.Size()
	_, err := c.Sendrecv(ctx, make([]byte, 8), (c.Rank()+step)%n, tag, make([]byte, 8), (c.Rank()+n-step)%n, tag)
	return err
}

// gather brings the values of all ranks together; each has as many.
func (r *rank) gather(ctx context.Context, mine []float64) ([]float64, error) {
	all := make([]float64, len(mine)*r.comm.Size())
	copy(all[r.comm.Rank()*len(mine):], mine)
	return all, mpi.Allreduce(ctx, r.comm, nil, all, mpi.Sum[float64]())
}

// resident returns the private memory of this process, and its memory with shared pages divided by the number of
// their users, in KiB.
func resident() (private, share float64, err error) {
	const path = "/proc/self/smaps_rollup"
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, 0, fmt.Errorf("memory of this process: %w", err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
		var name string
		var kib float64
		if _, err := fmt.Sscanf(lines.Text(), "%s %g kB", &name, &kib); err != nil {
			continue // the range of addresses
		}
		switch name {
		case "Pss:":
			share = kib
		case "Private_Clean:", "Private_Dirty:":
			private += kib
		}
	}
	if private == 0 || share == 0 {
		return 0, 0, fmt.Errorf("memory of this process: no Pss and Private_* in %s", path)
	}
	return private, share, nil
}

// blockedIn has the blocking calls of idle.
var blockedIn = []string{"receive", "barrier"}

// idle measures the processor time of ranks in a wait. All ranks but the first wait for a second at a
// time.
func (r *rank) idle(ctx context.Context, _ int) (Row, error) {
	l := r.o.loop(0, 3, 0, 0, 0)
	wait, release := r.receive, r.release
	if r.o.idleCall == "barrier" {
		wait = func(ctx context.Context) error { return mpi.Barrier(ctx, r.comm) }
		release = wait
		if err := wait(ctx); err != nil { // from the second collective on it is as in a loop
			return Row{}, err
		}
	}
	used := make([]float64, l.iterations) // none of it by rank 0
	for i := range l.warmupIterations + l.iterations {
		if r.comm.Rank() == 0 {
			time.Sleep(time.Second)
			if err := release(ctx); err != nil {
				return Row{}, err
			}
			continue
		}
		before, err := processorTime()
		if err != nil {
			return Row{}, err
		}
		start := time.Now()
		if err := wait(ctx); err != nil {
			return Row{}, err
		}
		whole := time.Since(start)
		after, err := processorTime()
		if err != nil {
			return Row{}, err
		}
		if i >= l.warmupIterations {
			used[i-l.warmupIterations] = 100 * (after - before).Seconds() / whole.Seconds()
		}
	}
	all, err := r.gather(ctx, used)
	if err != nil || r.comm.Rank() != 0 {
		return Row{}, err
	}
	return ofValues(Row{Unit: "%"}, all[l.iterations:]), nil
}

// idleTag is that of the messages for which idle ranks wait.
const idleTag = 1

func (r *rank) receive(ctx context.Context) error {
	_, err := r.comm.Recv(ctx, nil, 0, idleTag)
	return err
}

// release sends to all who wait.
func (r *rank) release(ctx context.Context) error {
	for peer := 1; peer < r.comm.Size(); peer++ {
		if err := r.comm.Send(ctx, nil, peer, idleTag); err != nil {
			return err
		}
	}
	return nil
}

// processorTime is how much of processors this process has used so far.
func processorTime() (time.Duration, error) {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0, fmt.Errorf("use of the processor: %w", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}
