package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/mpi"
)

// change measures messages soon after a change of the machine, because the rendezvous protocol is selected by
// earlier messages.

// changesTo are the values of --to.
var changesTo = []string{"swapped", "neighbour"}

// until is the number of messages after the change that are not timed, while the selector adapts.
const until = 200

// maskTag is that of the messages about processors.
const maskTag = 2

// changing measures each change, or that of --to.
func (r *rank) changing(ctx context.Context) error {
	for _, to := range changesTo {
		if r.o.onlyChange != "" && r.o.onlyChange != to {
			continue
		}
		err := r.sizes(func(size int) error {
			return r.row(ctx, size, func() (Row, error) { return r.afterChange(ctx, to, size) })
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// afterChange is latency's loop, with its warm-up before the change.
func (r *rank) afterChange(ctx context.Context, to string, size int) (row Row, err error) {
	mine, theirs, err := r.processors(ctx)
	if err != nil {
		return row, err
	}
	peer := 1 - r.comm.Rank()
	l, play, pong, err := r.pingPong(ctx, size, peer, peer, 0)
	if err != nil {
		return row, err
	}
	if r.comm.Rank() == 1 {
		play = pong
	}
	l.batchSize = 10
	if err := play(l.warmupIterations); err != nil {
		return row, err
	}
	back, err := r.changed(to, mine, theirs)
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, back()) }()
	if err := mpi.Barrier(ctx, r.comm); err != nil {
		return row, err
	}
	if err := play(until / l.opsPerIteration); err != nil {
		return row, err
	}
	l.warmupIterations = 0
	s, err := l.time(play, nil)
	if err != nil {
		return row, err
	}
	return s.times(Row{Bench: r.o.name + "/" + to, Unit: "us"}, 1e-3), nil
}

// changed makes the change, and returns a function that reverts it.
func (r *rank) changed(to string, mine, theirs int) (back func() error, err error) {
	if to == "swapped" {
		return func() error { return runOn(mine) }, runOn(theirs)
	}
	if r.comm.Rank() == 0 {
		return func() error { return nil }, nil
	}
	return neighbour()
}

// processors returns the one processor that this rank may use, and the other's.
func (r *rank) processors(ctx context.Context) (mine, theirs int, err error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return 0, 0, fmt.Errorf("processors of this rank: %w", err)
	}
	mine = -1
	for n := 0; set.Count() == 1 && mine < 0; n++ {
		if set.IsSet(n) {
			mine = n
		}
	}
	in, out := make([]byte, 8), binary.LittleEndian.AppendUint64(nil, uint64(mine))
	peer := 1 - r.comm.Rank()
	req, err := r.comm.Isend(out, peer, maskTag)
	if err != nil {
		return 0, 0, err
	}
	if _, err := r.comm.Recv(ctx, in, peer, maskTag); err != nil {
		return 0, 0, err
	}
	if _, err := req.Wait(ctx); err != nil {
		return 0, 0, err
	}
	theirs = int(int64(binary.LittleEndian.Uint64(in)))
	if mine < 0 || theirs < 0 || mine == theirs {
		return 0, 0, errors.New("each rank needs one processor of its own: start it with --bind-to core, where there are two")
	}
	return mine, theirs, nil
}

// runOn has all threads of this process run on a processor. A thread that is made meanwhile
// has the processors of its maker, so that a second look finds all.
func runOn(processor int) error {
	var set unix.CPUSet
	set.Set(processor)
	for range 2 {
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return err
		}
		for _, t := range threads {
			id, err := strconv.Atoi(t.Name())
			if err != nil {
				return err
			}
			if err := unix.SchedSetaffinity(id, &set); err != nil && !errors.Is(err, unix.ESRCH) { // it has ended
				return fmt.Errorf("bind to processor %d: %w", processor, err)
			}
		}
	}
	return nil
}

// neighbour starts a process that works on this rank's processor until end is called, or the
// rank has ended.
func neighbour() (end func() error, err error) {
	started, ended, stop := make(chan error), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		// The kernel kills it when the thread that has started it ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		cmd := exec.Command("sh", "-c", "while :; do :; done")
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		<-stop
		_ = cmd.Process.Kill() // It never ends before.
		_ = cmd.Wait()         // Returns the kill.
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("a process beside this rank: %w", err)
	}
	return func() error {
		close(stop)
		<-ended
		return nil
	}, nil
}
