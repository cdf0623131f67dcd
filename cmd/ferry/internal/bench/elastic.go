package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/ferrympi/ferry/cmd/ferry/internal/exit"
	"github.com/ferrympi/ferry/cmd/ferry/internal/settings"
	"github.com/ferrympi/ferry/mpi"
)

// Benchmarks of a job that grows and shrinks while it runs. The first ranks add processes and remove them again,
// in turn. The time of a change begins with the request, and ends when rank 0 has got back a message that it sent round the
// new communicator, and has finished the change.

const (
	elasticTag  = "ferry.bench.elastic" // Of the communicators.
	circulating = 1                     // Tag of the message that goes round.
	longestName = 256                   // Bytes of the name of a set.
	exitPoll    = time.Millisecond      // Between two checks for the end of a removed process.
	workUnit    = 50 * time.Microsecond // Computation between two checks of a Future.
)

// elastic is one process of such a job.
type elastic struct {
	o       *options
	session *mpi.Session
	// The name of the main set.
	mainPset string
	mainComm *mpi.Comm
	inCalls  time.Duration
	// At rank 0, of all ranks after a growth.
	rankPIDs []int64
	// At rank 0: sets that the latest changes have created.
	psetList []string
}

// A span is the cost of one change.
type span struct {
	totalTime time.Duration
	// Part of totalTime inside calls of the library.
	inCalls time.Duration
}

// checkElastic checks --add and --async.
func (o *options) checkElastic() error {
	switch {
	case o.isGiven("add") && !o.isElastic:
		return exit.Usagef("--add: %s adds no processes; grow and shrink do", o.name)
	case o.isGiven("async") && !o.isElastic:
		return exit.Usagef("--async: %s has no asynchronous form; grow and shrink have", o.name)
	case o.changedProcesses < 1:
		return exit.Usagef("--add %d: want at least 1 process", o.changedProcesses)
	}
	return nil
}

// asElastic measures as one of the first ranks, or takes part as an added process.
func (o *options) asElastic(ctx context.Context, out io.Writer, options []mpi.SessionOption) (err error) {
	e := &elastic{o: o, mainPset: "mpi://WORLD"}
	if e.session, err = mpi.OpenSession(ctx, append(settings.Session(), options...)...); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.close()) }()
	_, isAdded, err := e.session.ResourceChange(ctx, "mpi://SELF")
	if err != nil {
		return err
	}
	if isAdded {
		return e.asAdded(ctx)
	}
	if e.mainComm, err = settings.World(ctx, e.session, elasticTag); err != nil {
		return err
	}
	if err := o.adopt(e.mainComm.Size()); err != nil {
		return err
	}
	return e.measure(ctx, out)
}

func (e *elastic) close() (err error) {
	if e.mainComm != nil {
		err = e.mainComm.Close()
	}
	return errors.Join(err, e.session.Close())
}

// measure grows and shrinks the job again and again, and prints the rows at rank 0.
func (e *elastic) measure(ctx context.Context, out io.Writer) (err error) {
	l := e.o.loop(0, 10, 1, 0, 0)
	total, calls := newSample(), make([]float64, l.iterations)
	for i := range l.warmupIterations + l.iterations {
		cost, err := e.grow(ctx)
		if err != nil {
			return err
		}
		shrinking, err := e.shrink(ctx)
		if err != nil {
			return err
		}
		if e.o.name == "shrink" {
			cost = shrinking
		}
		if i >= l.warmupIterations {
			total.add(cost.totalTime, 1)
			calls[i-l.warmupIterations] = cost.inCalls.Seconds() * 1e3
		}
	}
	if err := mpi.Allreduce(ctx, e.mainComm, nil, calls, mpi.Max[float64]()); err != nil || e.mainComm.Rank() != 0 {
		return err
	}
	row := Row{Size: e.o.changedProcesses, RankCount: e.mainComm.Size(), Unit: "ms"}
	table, err := e.o.begin(out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, table.close()) }()
	row.Bench = e.o.name + "/total"
	if err := table.row(total.times(row, 1e-6)); err != nil {
		return err
	}
	row.Bench = e.o.name + "/calls"
	return table.row(ofValues(row, calls))
}

// grow adds the processes.
func (e *elastic) grow(ctx context.Context) (cost span, err error) {
	if cost, err = e.change(ctx, mpi.PsetGrow, mpi.PsetArgs{Add: e.o.changedProcesses}); err != nil {
		return cost, err
	}
	return cost, e.gatherPIDs(ctx)
}

// shrink removes them, waits for their ends, and deletes the sets that are not in use.
func (e *elastic) shrink(ctx context.Context) (cost span, err error) {
	if cost, err = e.change(ctx, mpi.PsetShrink, mpi.PsetArgs{Sub: e.o.changedProcesses}); err != nil || e.mainComm.Rank() != 0 {
		return cost, err
	}
	for _, pid := range e.rankPIDs[e.mainComm.Size():] {
		for syscall.Kill(int(pid), 0) == nil { // The launcher ends those that stay.
			time.Sleep(exitPoll)
		}
	}
	for _, name := range e.psetList {
		if name == e.mainPset {
			continue
		}
		if err := e.session.DeletePset(ctx, name); err != nil {
			return cost, err
		}
	}
	e.psetList = []string{e.mainPset}
	return cost, nil
}

// change makes one change, as one of the first ranks.
func (e *elastic) change(ctx context.Context, op mpi.PsetOp, args mpi.PsetArgs) (cost span, err error) {
	if err := mpi.Barrier(ctx, e.mainComm); err != nil {
		return cost, err
	}
	old := e.mainComm
	e.inCalls = 0
	start := clock()
	delta, err := e.request(ctx, op, args)
	if err != nil {
		return cost, err
	}
	if err := e.integrate(ctx, delta); err != nil {
		return cost, err
	}
	if err := e.rebuild(ctx, delta); err != nil {
		return cost, err
	}
	cost = span{clock() - start, e.inCalls}
	return cost, old.Close()
}

// enter begins a call. The time until leave counts as inside calls.
func (e *elastic) enter() (leave func()) {
	start := clock()
	return func() { e.inCalls += clock() - start }
}

// await starts a call, computes until it is done, and returns its result.
func await[T any](ctx context.Context, e *elastic, call func() *mpi.Future[T]) (T, error) {
	leave := e.enter()
	f := call()
	leave()
	for {
		work(workUnit)
		select {
		case <-f.Done():
			defer e.enter()()
			return f.Wait(ctx)
		default:
		}
	}
}

// request requests a change at rank 0, and returns the delta in all of the first ranks.
func (e *elastic) request(ctx context.Context, op mpi.PsetOp, args mpi.PsetArgs) (delta string, err error) {
	if e.mainComm.Rank() > 0 {
		if e.o.isAsync {
			change, err := await(ctx, e, func() *mpi.Future[mpi.Change] { return e.session.ResourceChangeAsync(e.mainPset) })
			return change.Delta, err
		}
		defer e.enter()()
		return e.broadcast(ctx, "")
	}
	var names []string
	operands := []string{e.mainPset}
	if e.o.isAsync {
		names, err = await(ctx, e, func() *mpi.Future[[]string] { return e.session.PsetOpAsync(op, operands, args) })
	} else {
		defer e.enter()()
		names, err = e.session.PsetOp(ctx, op, operands, args)
	}
	if err != nil {
		return "", err
	}
	e.psetList = slices.Concat(e.psetList, names)
	if e.o.isAsync {
		return names[0], nil
	}
	return e.broadcast(ctx, names[0])
}

// broadcast sends a name from rank 0 to all.
func (e *elastic) broadcast(ctx context.Context, name string) (string, error) {
	buf := make([]byte, longestName)
	if copy(buf, name) < len(name) {
		return "", fmt.Errorf("name of a process set: %d bytes: want at most %d", len(name), longestName)
	}
	err := mpi.Bcast(ctx, e.mainComm, buf, 0)
	return string(bytes.TrimRight(buf, "\x00")), err
}

// integrate integrates a change.
func (e *elastic) integrate(ctx context.Context, delta string) error {
	var got mpi.Integration
	var err error
	if e.o.isAsync {
		got, err = await(ctx, e, func() *mpi.Future[mpi.Integration] { return e.session.IntegrateAsync(delta, "") })
	} else {
		defer e.enter()()
		got, err = e.session.Integrate(ctx, delta, "")
	}
	e.mainPset = got.Pset
	return err
}

// rebuild makes the communicator of the main set, sends a message round it, and finishes the change.
func (e *elastic) rebuild(ctx context.Context, delta string) error {
	defer e.enter()()
	all, err := e.session.Group(ctx, e.mainPset)
	if err != nil {
		return err
	}
	if e.mainComm, err = mpi.CommFromGroup(ctx, all, elasticTag); err != nil {
		return err
	}
	if err := circulate(ctx, e.mainComm); err != nil || e.mainComm.Rank() != 0 {
		return err
	}
	return e.session.FinishChange(ctx, delta)
}

// circulate sends a message from rank 0 round a communicator, and back to it.
func circulate(ctx context.Context, c *mpi.Comm) error {
	message := make([]byte, 8)
	next, previous := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
	if c.Size() == 1 {
		return nil
	}
	if c.Rank() == 0 {
		if err := c.Send(ctx, message, next, circulating); err != nil {
			return err
		}
	}
	if _, err := c.Recv(ctx, message, previous, circulating); err != nil || c.Rank() == 0 {
		return err
	}
	return c.Send(ctx, message, next, circulating)
}

// gatherPIDs collects the process ids of all ranks at rank 0.
func (e *elastic) gatherPIDs(ctx context.Context) error {
	e.rankPIDs = make([]int64, e.mainComm.Size())
	return mpi.Gather(ctx, e.mainComm, []int64{int64(os.Getpid())}, e.rankPIDs, 0)
}

// asAdded takes part in one growth and in the change that removes this process.
func (e *elastic) asAdded(ctx context.Context) error {
	const delta = "mpi://SELF"
	if err := e.integrate(ctx, delta); err != nil {
		return err
	}
	if err := e.rebuild(ctx, delta); err != nil {
		return err
	}
	if err := e.gatherPIDs(ctx); err != nil {
		return err
	}
	if err := mpi.Barrier(ctx, e.mainComm); err != nil {
		return err
	}
	removal, err := e.removal(ctx)
	if err != nil {
		return err
	}
	got, err := e.session.Integrate(ctx, removal, "")
	if err == nil && !got.Terminate {
		err = fmt.Errorf("change %s: it does not remove this process", removal)
	}
	return err
}

// removal waits for the change that removes this process, and returns its delta.
func (e *elastic) removal(ctx context.Context) (delta string, err error) {
	if !e.o.isAsync {
		return e.broadcast(ctx, "")
	}
	change, err := e.session.ResourceChangeAsync(e.mainPset).Wait(ctx)
	return change.Delta, err
}
