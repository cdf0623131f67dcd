package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/cmd/ferry/internal/exit"
	"github.com/ferrympi/ferry/internal/cpu"
	"github.com/ferrympi/ferry/mpi"
)

// checkRanks fills in the numbers of processes and ranks.
func (o *options) checkRanks() error {
	if o.isGiven("goroutines") {
		switch {
		case o.isOfProcesses:
			return exit.Usagef("--goroutines: %s measures processes", o.name)
		case o.isGiven("connected") || o.isGiven("live") || o.isGiven("alloc"):
			return exit.Usagef("--goroutines: --connected, --live and --alloc are about processes")
		case o.goroutinesPerProcess < 1 || o.goroutinesPerProcess > mpi.MaxGoroutines:
			return exit.Usagef("--goroutines %d: want 1 to %d goroutine ranks", o.goroutinesPerProcess, mpi.MaxGoroutines)
		}
	}
	if o.processCount == 0 && !o.isGiven("n") {
		switch o.processCount = 1; {
		case o.name == "recover":
			o.processCount = recoverRanks
		case o.goroutinesPerProcess == 0:
			o.processCount = max(2, o.connectedRanks+1)
		}
	}
	if o.processCount < 1 {
		return exit.Usagef("-n %d: want at least 1 rank", o.processCount)
	}
	if o.isGiven("nodes") && (o.nodeCount < 1 || o.nodeCount > o.processCount) {
		return exit.Usagef("--nodes %d: want 1 to %d nodes, since each needs a process (-n)", o.nodeCount, o.processCount)
	}
	o.rankCount = o.processCount * max(1, o.goroutinesPerProcess)
	given := fmt.Sprintf("-n %d", o.processCount)
	if o.goroutinesPerProcess > 0 {
		given += fmt.Sprintf(" --goroutines %d", o.goroutinesPerProcess)
	}
	switch {
	case o.wantedRanks == pair && o.rankCount != 2, o.wantedRanks == pairOrAlone && o.rankCount != 2 && (o.rankCount != 1 || o.parsedTail != nil):
		return exit.Usagef("%s: %s is between 2 ranks", given, o.name)
	case o.wantedRanks == pairs && (o.rankCount < 2 || o.rankCount%2 != 0):
		return exit.Usagef("%s: %s needs pairs of ranks", given, o.name)
	case o.wantedRanks == several && o.rankCount < 2:
		return exit.Usagef("%s: %s needs at least 2 ranks", given, o.name)
	}
	return nil
}

// binding returns how to bind the processes of a job on that many cores (launch.Job). Goroutine ranks that outnumber
// the cores are not bound, because the kernel switches goroutines with locked threads.
func (o *options) binding(available int) (bind bool, cores int) {
	each := o.goroutinesPerProcess
	if o.name == "latency_mt" || o.isPaired {
		each = o.goroutinesPerRank
	}
	switch {
	case each > 1 && o.processCount*each <= available:
		return false, each
	case o.goroutinesPerProcess > 0 && o.rankCount > available:
		return false, 0
	}
	return true, 0
}

// asGoroutines measures as goroutine ranks of one of the processes of comm.
func (o *options) asGoroutines(ctx context.Context, session *mpi.Session, comm *mpi.Comm, out io.Writer) error {
	threads, err := mpi.NewThreadComm(ctx, comm, o.goroutinesPerProcess)
	if err != nil {
		return err
	}
	cores := ownCores(o.goroutinesPerProcess, o.rankCount, comm.Size())
	first := comm.Rank() * o.goroutinesPerProcess
	err = threads.Run(ctx, func(ctx context.Context, c *mpi.Comm) error {
		if cores != nil {
			if err := bindThread(cores[c.Rank()-first]); err != nil {
				return err
			}
		}
		return o.perform(ctx, session, c, out)
	})
	return errors.Join(err, threads.Close())
}

// ownCores returns a processor for each goroutine rank of this process, which has n of the given number of all
// ranks, or nil if processors would be shared.
func ownCores(n, ranks, processes int) (cores []int) {
	var set unix.CPUSet
	if ranks > cpu.ForRanks() || unix.SchedGetaffinity(0, &set) != nil {
		return nil
	}
	if count := set.Count(); count < n || count > n && processes > 1 {
		return nil // Other processes may run on the same ones.
	}
	for i := 0; len(cores) < n; i++ {
		if set.IsSet(i) {
			cores = append(cores, i)
		}
	}
	return cores
}

// bindThread locks the calling goroutine to a thread on one processor. The thread ends with the
// goroutine.
func bindThread(core int) error {
	runtime.LockOSThread()
	var set unix.CPUSet
	set.Set(core)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("bind a goroutine rank to processor %d: %w", core, err)
	}
	return nil
}

// mostThreads is a limit of --threads. Each goroutine has buffers.
const mostThreads = 1024

// latencyThreads is osu_latency_mt's loop, with as many goroutines at the sender as at the receiver. All of a rank
// use one communicator at once.
func (r *rank) latencyThreads(ctx context.Context, size int) (Row, error) {
	peer := 1 - r.comm.Rank()
	group, ctx := errgroup.WithContext(ctx)
	samples, loops := make([]*sample, r.o.goroutinesPerRank), make([]func() error, r.o.goroutinesPerRank)
	for thread := range loops { // Buffers are allocated before any message.
		l, ping, pong, err := r.pingPong(ctx, size, peer, peer, thread)
		if err != nil {
			return Row{}, err
		}
		loops[thread] = func() (err error) {
			if peer == 0 {
				return pong(l.warmupIterations + l.iterations)
			}
			samples[thread], err = l.time(ping, nil)
			return err
		}
	}
	for _, loop := range loops {
		group.Go(loop)
	}
	if err := group.Wait(); err != nil || peer == 0 {
		return Row{}, err
	}
	whole := samples[0]
	for _, s := range samples[1:] {
		whole.merge(s)
	}
	return whole.times(Row{Unit: "us"}, 1e-3), nil
}
