package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/ferrympi/ferry/btl/segment"
	"github.com/ferrympi/ferry/cmd/ferry/internal/exit"
	"github.com/ferrympi/ferry/cmd/ferry/internal/settings"
	"github.com/ferrympi/ferry/internal/cpu"
	"github.com/ferrympi/ferry/internal/hop"
	"github.com/ferrympi/ferry/mpi"
)

// rank is one rank of a benchmark.
type rank struct {
	o           *options
	session     *mpi.Session
	comm        *mpi.Comm
	hopLine     *hop.Line        // Between ranks 0 and 1; nil elsewhere.
	lineMapping *segment.Mapping // Of hopLine.
	rowMemories []*mpi.Memory    // Of the row that is measured.
	// Communicators of paired goroutines, one for each pair.
	laneComms []*mpi.Comm
	emitRow   func(Row) error
}

// asRank measures as one of the ranks, and prints if it is the first.
func (o *options) asRank(ctx context.Context, out io.Writer) (err error) {
	options := []mpi.SessionOption{mpi.WithThreadLevel(threadLevels[o.threadLevel])}
	if !o.isRank { // Ranks have them in the environment.
		options = append(options, settings.Options(*o.settingFlags)...)
	}
	if o.isElastic {
		return o.asElastic(ctx, out, options)
	}
	if o.name == "startup" {
		return o.asStartup(ctx, out, options)
	}
	start := time.Now()
	session, comm, done, err := settings.Join(ctx, "ferry.bench", options...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	opened := time.Since(start)
	switch o.name {
	case "init":
		// The launcher reads these lines; a line is one write.
		_, err := fmt.Fprintln(out, opened.Nanoseconds())
		return err
	case "hello":
		return mpi.Barrier(ctx, comm)
	case "recover":
		return killAndRecover(ctx, comm, out)
	}
	if err := o.adopt(comm.Size()); err != nil {
		return err
	}
	if o.goroutinesPerProcess > 0 {
		return o.asGoroutines(ctx, session, comm, out)
	}
	return o.perform(ctx, session, comm, out)
}

// adopt takes the number of processes that a launcher has started.
func (o *options) adopt(processes int) error {
	if o.isGiven("n") && o.processCount != processes {
		return exit.Usagef("-n %d: the launcher has started %d ranks already: leave -n out", o.processCount, processes)
	}
	o.processCount = processes
	return o.check([]string{o.name})
}

// perform measures as one of the ranks of comm, and prints if it is the first.
func (o *options) perform(ctx context.Context, session *mpi.Session, comm *mpi.Comm, out io.Writer) (err error) {
	r := &rank{o: o, session: session, comm: comm}
	if err := r.openLine(ctx); err != nil {
		return err
	}
	if r.lineMapping != nil {
		defer func() { err = errors.Join(err, r.lineMapping.Close()) }()
	}
	if comm.Rank() == 0 {
		table, err := o.begin(out)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, table.close()) }()
		r.emitRow = table.row
	}
	return r.measure(ctx)
}

// Within runs the command with the arguments args in an open session, over a communicator of the measured ranks.
// All of them call it, and rank 0 receives each row. There is no raw hop, because the ranks may be on different
// nodes.
func Within(ctx context.Context, s *mpi.Session, c *mpi.Comm, args []string, each func(Row)) error {
	o := options{rankOptions: rankOptions{processCount: c.Size()}}
	cmd := o.command()
	if err := cmd.ParseFlags(args); err != nil {
		return exit.Usagef("%w", err)
	}
	o.isGiven = cmd.Flags().Changed
	if err := o.check(cmd.Flags().Args()); err != nil {
		return err
	}
	if o.fromOutside() {
		return exit.Usagef("%s measures jobs from outside", o.name)
	}
	if o.isElastic {
		return exit.Usagef("%s changes a job of its own: start it by itself, or as the program of ferry run --max-ranks", o.name)
	}
	r := &rank{o: &o, session: s, comm: c, emitRow: func(row Row) error { each(row); return nil }}
	return r.measure(ctx)
}

// lineTag is that of the messages about the shared cache line.
const lineTag = 1

// openLine opens a shared cache line of ranks 0 and 1, if ranks do not share processors. A raw hop of two ranks on
// one processor is meaningless, and takes so long that the others, already
// in the loop, go to sleep.
func (r *rank) openLine(ctx context.Context) (err error) {
	busy := r.comm.Size()
	if r.o.connectedRanks > 0 {
		busy = 2 // the others have connected, and sleep
	}
	if busy < 2 || busy > cpu.ForRanks() || r.comm.Rank() > 1 {
		return nil
	}
	var s segment.Segment
	if r.comm.Rank() == 0 {
		s, err = createLine()
	} else {
		path := make([]byte, 4096)
		st, failed := r.comm.Recv(ctx, path, 0, lineTag)
		if failed != nil {
			return failed
		}
		s, err = segment.Files{}.Open(string(path[:st.Bytes]))
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if r.lineMapping, err = s.Map(0, segment.PageSize); err != nil {
		return err
	}
	r.hopLine = hop.At(r.lineMapping.Bytes)
	if r.comm.Rank() == 1 {
		return r.comm.Send(ctx, nil, 0, lineTag)
	}
	if err := r.comm.Send(ctx, []byte(s.Path()), 1, lineTag); err != nil {
		return err
	}
	_, err = r.comm.Recv(ctx, nil, 1, lineTag) // it has opened the file
	return err
}

// createLine creates a file for the line, in memory if there is room, because pages there are never
// written back. It removes files of ranks that were killed before both had opened theirs.
func createLine() (segment.Segment, error) {
	var failed error
	for _, dir := range []string{shmDir, os.TempDir()} {
		removeOldLines(dir, time.Now())
		s, err := segment.Files{}.Create(filepath.Join(dir, fmt.Sprintf("ferry-hop-%x-%x", os.Getpid(), time.Now().UnixNano())), segment.PageSize)
		if err == nil {
			return s, nil
		}
		failed = errors.Join(failed, err)
	}
	return nil, failed
}

// oldLine is how long no rank takes to open a file that another has made.
const oldLine = 10 * time.Minute

// removeOldLines removes old files of createLine in dir.
func removeOldLines(dir string, now time.Time) {
	paths, _ := filepath.Glob(filepath.Join(dir, "ferry-hop-*-*")) // the pattern is well formed
	for _, path := range paths {
		if st, err := os.Lstat(path); err == nil && st.Mode().IsRegular() && now.Sub(st.ModTime()) > oldLine {
			_ = os.Remove(path) // another user's stays
		}
	}
}

// measure runs the benchmark for each size, or once.
func (r *rank) measure(ctx context.Context) error {
	switch {
	case r.o.measureAll != nil:
		return r.o.measureAll(r, ctx)
	case !r.o.hasSizes:
		return r.one(ctx, 0)
	}
	return r.sizes(func(size int) error { return r.one(ctx, size) })
}

// sizes calls f for each size of messages.
func (r *rank) sizes(f func(size int) error) error {
	for size := r.o.minSize; size <= r.o.maxSize; size = r.o.next(size) {
		if err := f(size); err != nil {
			return err
		}
	}
	return nil
}

// threadLevels are the values of --thread-level.
var threadLevels = map[string]mpi.ThreadLevel{
	"single": mpi.ThreadSingle, "funneled": mpi.ThreadFunneled, "serialized": mpi.ThreadSerialized, "multiple": mpi.ThreadMultiple,
}

// one measures one row in all ranks.
func (r *rank) one(ctx context.Context, size int) error {
	return r.row(ctx, size, func() (Row, error) {
		if err := mpi.Barrier(ctx, r.comm); err != nil {
			return Row{}, err
		}
		return r.o.measureRow(r, ctx, size)
	})
}

// row measures one row, with the raw hop before and after. Its name is the benchmark's, unless
// f sets one. A garbage collection comes first, because it would dominate a loop of half
// a millisecond.
func (r *rank) row(ctx context.Context, size int, f func() (Row, error)) error {
	runtime.GC()
	before, err := r.rawHop(ctx)
	if err != nil {
		return err
	}
	row, err := f()
	if err = errors.Join(err, r.freeBuffers()); err != nil {
		return err
	}
	after, err := r.rawHop(ctx)
	if err != nil || r.comm.Rank() != 0 {
		return err
	}
	row.Bench, row.Size, row.RankCount = cmp.Or(row.Bench, r.o.name), size, r.comm.Size()
	row.GoroutineRanks = r.o.goroutinesPerProcess
	row.IsPersistent, row.IsendIrecv = r.o.isPersistent, r.o.isSeparate
	if r.o.isPaired {
		row.PairedGoroutines, row.HasStreams = r.o.goroutinesPerRank, r.o.onStreams
	}
	row.RawHop = max(before, after)
	return r.emitRow(row)
}

// rawHop measures between ranks 0 and 1; elsewhere, and without a line, it is 0.
func (r *rank) rawHop(ctx context.Context) (float64, error) {
	if r.hopLine == nil {
		return 0, nil
	}
	me := r.comm.Rank()
	return r.hopLine.Measure(ctx, me == 0, func() error {
		_, _, err := r.comm.Iprobe(1-me, lineTag) // It never finds a message, and reports a failed peer.
		return err
	})
}

// hop measures the raw hop as a benchmark.
func (r *rank) hop(ctx context.Context, _ int) (Row, error) {
	s := newSample()
	l := r.o.loop(0, 100, 10, 0, 0)
	for i := range l.warmupIterations + l.iterations {
		ns, err := r.rawHop(ctx)
		if err != nil {
			return Row{}, err
		}
		if i >= l.warmupIterations {
			// One "operation" is a thousand hops, to keep digits below a nanosecond.
			s.add(time.Duration(ns*1000), 1000)
		}
	}
	return s.times(Row{Unit: "ns"}, 1), nil
}

// buffer returns a buffer with written pages, for one row. Unwritten pages share
// one page of zeros, which stays in the cache, so that a sender
// would seem to read faster.
func (r *rank) buffer(size int) ([]byte, error) {
	var b []byte
	if r.o.allocMem {
		m, err := mpi.AllocMem(r.session, size)
		if err != nil {
			return nil, err
		}
		r.rowMemories = append(r.rowMemories, m)
		b = mpi.View[byte](m)
	} else {
		b = make([]byte, size)
	}
	for i := range b {
		b[i] = 'a'
	}
	return b, nil
}

// buffers returns one to send from and one to receive into.
func (r *rank) buffers(size int) (send, recv []byte, err error) {
	if send, err = r.buffer(size); err == nil {
		recv, err = r.buffer(size)
	}
	return send, recv, err
}

// freeBuffers ends a row.
func (r *rank) freeBuffers() error {
	var err error
	for _, m := range r.rowMemories {
		err = errors.Join(err, m.Close())
	}
	r.rowMemories = nil
	return err
}
