package main

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/ferrympi/ferry/mpi"
)

// Tags of messages.
const (
	tagDown = iota
	tagUp
	tagCopy
	tagRestore // Plus the first row.
)

// advance computes the steps up to the next checkpoint.
func (m *member) advance(ctx context.Context) (checkpoint, error) {
	w, size := width(m.grid), m.comm.Size()
	own := m.saved.own
	now, next := slices.Clone(own.cells), make([]float64, len(own.cells))
	above, below := frame(m.grid)
	up, down := m.comm.Rank()-1, m.comm.Rank()+1
	if up < 0 {
		up = mpi.ProcNull
	}
	if down == size {
		down = mpi.ProcNull
	}
	step := m.saved.step
	for ; step < min(m.saved.step+m.interval, m.steps); step++ {
		// The last row goes down while the row above comes. Then the first row goes up.
		if _, err := mpi.Sendrecv(ctx, m.comm, now[len(now)-w:], down, tagDown, above, up, tagDown); err != nil {
			return checkpoint{}, err
		}
		if m.die != nil && step == m.dieAt {
			fmt.Fprintf(os.Stderr, "rank %d kills itself in step %d\n", m.world.Rank(), step)
			m.die()
		}
		if _, err := mpi.Sendrecv(ctx, m.comm, now[:w], up, tagUp, below, down, tagUp); err != nil {
			return checkpoint{}, err
		}
		sweep(next, now, above, below, w)
		now, next = next, now
	}
	own.cells = now
	return m.replicate(ctx, step, own)
}

// replicate returns a checkpoint of this rank's block, with copies of the blocks of the ranks before
// it.
func (m *member) replicate(ctx context.Context, step int, own block) (checkpoint, error) {
	state := checkpoint{step: step, own: own}
	for k := 1; k <= m.replicas(); k++ {
		first, rows := share(m.grid, m.before(k), m.comm.Size())
		replica := newBlock(m.grid, first, rows)
		if _, err := mpi.Sendrecv(ctx, m.comm, own.cells, m.after(k), tagCopy, replica.cells, m.before(k), tagCopy); err != nil {
			return checkpoint{}, err
		}
		state.copies = append(state.copies, replica)
	}
	return state, nil
}

// restore divides the rows of the checkpoint among the survivors.
func (m *member) restore(ctx context.Context) (checkpoint, error) {
	sources, err := m.findBlocks(ctx)
	if err != nil {
		return checkpoint{}, err
	}
	first, rows := share(m.grid, m.comm.Rank(), m.comm.Size())
	own := newBlock(m.grid, first, rows)
	var requests []mpi.Request
	for _, s := range sources {
		for rank := range m.comm.Size() {
			request, isStarted, err := m.move(s, rank, own)
			if err != nil {
				return checkpoint{}, err
			}
			if isStarted {
				requests = append(requests, request)
			}
		}
	}
	if err := mpi.WaitAll(ctx, requests, nil); err != nil {
		return checkpoint{}, err
	}
	return m.replicate(ctx, m.saved.step, own)
}

// source is a block of the checkpoint, and a rank that has it.
type source struct{ first, rows, rank int }

// findBlocks returns the blocks of the checkpoint, with their owners, or with the first holder of a
// copy if the owner has died. It returns errLost if a block is missing.
func (m *member) findBlocks(ctx context.Context) ([]source, error) {
	held := m.held()
	all := make([]int64, len(held)*m.comm.Size())
	if err := mpi.Allgather(ctx, m.comm, held, all); err != nil {
		return nil, err
	}
	blocks := map[int]source{} // By first row.
	for i := 0; i < len(all); i += 2 {
		s := source{int(all[i]), int(all[i+1]), i / len(held)}
		isOwner := i%len(held) == 0
		if _, known := blocks[s.first]; s.rows > 0 && (isOwner || !known) {
			blocks[s.first] = s
		}
	}
	var sources []source
	for row := 0; row < m.grid; {
		s, ok := blocks[row]
		if !ok {
			return nil, errLost
		}
		sources = append(sources, s)
		row += s.rows
	}
	return sources, nil
}

// held returns the first row and the number of rows of the blocks that this rank has, its own first.
// The list has the same length in all ranks.
func (m *member) held() []int64 {
	held := make([]int64, 2*(m.copies+1))
	for i, b := range append([]block{m.saved.own}, m.saved.copies...) {
		held[2*i], held[2*i+1] = int64(b.first), int64(b.rows)
	}
	return held
}

// move starts the transfer of the rows of a source that belong to a rank, as far as this rank takes
// part in it.
func (m *member) move(s source, rank int, own block) (_ mpi.Request, isStarted bool, err error) {
	first, rows := share(m.grid, rank, m.comm.Size())
	begin, end := max(first, s.first), min(first+rows, s.first+s.rows)
	isSender, isReceiver := s.rank == m.comm.Rank(), rank == m.comm.Rank()
	if begin >= end || !isSender && !isReceiver {
		return mpi.Request{}, false, nil
	}
	w := width(m.grid)
	rowsOf := func(b block) []float64 { return b.cells[(begin-b.first)*w : (end-b.first)*w] }
	switch {
	case isSender && isReceiver:
		copy(rowsOf(own), rowsOf(m.blockAt(s.first)))
		return mpi.Request{}, false, nil
	case isSender:
		request, err := mpi.Isend(m.comm, rowsOf(m.blockAt(s.first)), rank, tagRestore+begin)
		return request, true, err
	}
	request, err := mpi.Irecv(m.comm, rowsOf(own), s.rank, tagRestore+begin)
	return request, true, err
}

// blockAt returns the saved block that begins with a row.
func (m *member) blockAt(first int) block {
	for _, b := range m.saved.copies {
		if b.first == first {
			return b
		}
	}
	return m.saved.own
}

// check compares the plate with that of an uninterrupted run.
func (m *member) check(ctx context.Context) (checkpoint, error) {
	size, w := m.comm.Size(), width(m.grid)
	counts, displs := make([]int, size), make([]int, size)
	for rank := range size {
		first, rows := share(m.grid, rank, size)
		counts[rank], displs[rank] = rows*w, first*w
	}
	var plate []float64
	if m.comm.Rank() == 0 {
		plate = make([]float64, m.grid*w)
	}
	if err := mpi.Gatherv(ctx, m.comm, m.saved.own.cells, plate, counts, displs, 0); err != nil {
		return checkpoint{}, err
	}
	if m.comm.Rank() == 0 && !slices.Equal(plate, uninterrupted(m.grid, m.steps)) {
		return checkpoint{}, fmt.Errorf("check failed: the plate differs from that of an uninterrupted run")
	}
	return m.saved, nil
}
