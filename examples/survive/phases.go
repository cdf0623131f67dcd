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
	w, size := width(m.gridSize), m.liveComm.Size()
	own := m.savedState.ownBlock
	now, next := slices.Clone(own.cells), make([]float64, len(own.cells))
	above, below := frame(m.gridSize)
	up, down := m.liveComm.Rank()-1, m.liveComm.Rank()+1
	if up < 0 {
		up = mpi.ProcNull
	}
	if down == size {
		down = mpi.ProcNull
	}
	step := m.savedState.atStep
	for ; step < min(m.savedState.atStep+m.checkpointInterval, m.stepCount); step++ {
		// The last row goes down while the row above comes. Then the first row goes up.
		if _, err := mpi.Sendrecv(ctx, m.liveComm, now[len(now)-w:], down, tagDown, above, up, tagDown); err != nil {
			return checkpoint{}, err
		}
		if m.dieNow != nil && step == m.dieAt {
			fmt.Fprintf(os.Stderr, "rank %d kills itself in step %d\n", m.worldComm.Rank(), step)
			m.dieNow()
		}
		if _, err := mpi.Sendrecv(ctx, m.liveComm, now[:w], up, tagUp, below, down, tagUp); err != nil {
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
	state := checkpoint{atStep: step, ownBlock: own}
	for k := 1; k <= m.replicas(); k++ {
		first, rows := share(m.gridSize, m.before(k), m.liveComm.Size())
		replica := newBlock(m.gridSize, first, rows)
		if _, err := mpi.Sendrecv(ctx, m.liveComm, own.cells, m.after(k), tagCopy, replica.cells, m.before(k), tagCopy); err != nil {
			return checkpoint{}, err
		}
		state.otherCopies = append(state.otherCopies, replica)
	}
	return state, nil
}

// restore divides the rows of the checkpoint among the survivors.
func (m *member) restore(ctx context.Context) (checkpoint, error) {
	sources, err := m.findBlocks(ctx)
	if err != nil {
		return checkpoint{}, err
	}
	first, rows := share(m.gridSize, m.liveComm.Rank(), m.liveComm.Size())
	own := newBlock(m.gridSize, first, rows)
	var requests []mpi.Request
	for _, s := range sources {
		for rank := range m.liveComm.Size() {
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
	return m.replicate(ctx, m.savedState.atStep, own)
}

// source is a block of the checkpoint, and a rank that has it.
type source struct{ first, rows, rank int }

// findBlocks returns the blocks of the checkpoint, with their owners, or with the first holder of a
// copy if the owner has died. It returns errLost if a block is missing.
func (m *member) findBlocks(ctx context.Context) ([]source, error) {
	held := m.held()
	all := make([]int64, len(held)*m.liveComm.Size())
	if err := mpi.Allgather(ctx, m.liveComm, held, all); err != nil {
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
	for row := 0; row < m.gridSize; {
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
	held := make([]int64, 2*(m.copyCount+1))
	for i, b := range append([]block{m.savedState.ownBlock}, m.savedState.otherCopies...) {
		held[2*i], held[2*i+1] = int64(b.firstRow), int64(b.rowCount)
	}
	return held
}

// move starts the transfer of the rows of a source that belong to a rank, as far as this rank takes
// part in it.
func (m *member) move(s source, rank int, own block) (_ mpi.Request, isStarted bool, err error) {
	first, rows := share(m.gridSize, rank, m.liveComm.Size())
	begin, end := max(first, s.first), min(first+rows, s.first+s.rows)
	isSender, isReceiver := s.rank == m.liveComm.Rank(), rank == m.liveComm.Rank()
	if begin >= end || !isSender && !isReceiver {
		return mpi.Request{}, false, nil
	}
	w := width(m.gridSize)
	rowsOf := func(b block) []float64 { return b.cells[(begin-b.firstRow)*w : (end-b.firstRow)*w] }
	switch {
	case isSender && isReceiver:
		copy(rowsOf(own), rowsOf(m.blockAt(s.first)))
		return mpi.Request{}, false, nil
	case isSender:
		request, err := mpi.Isend(m.liveComm, rowsOf(m.blockAt(s.first)), rank, tagRestore+begin)
		return request, true, err
	}
	request, err := mpi.Irecv(m.liveComm, rowsOf(own), s.rank, tagRestore+begin)
	return request, true, err
}

// blockAt returns the saved block that begins with a row.
func (m *member) blockAt(first int) block {
	for _, b := range m.savedState.otherCopies {
		if b.firstRow == first {
			return b
		}
	}
	return m.savedState.ownBlock
}

// check compares the plate with that of an uninterrupted run.
func (m *member) check(ctx context.Context) (checkpoint, error) {
	size, w := m.liveComm.Size(), width(m.gridSize)
	counts, displs := make([]int, size), make([]int, size)
	for rank := range size {
		first, rows := share(m.gridSize, rank, size)
		counts[rank], displs[rank] = rows*w, first*w
	}
	var plate []float64
	if m.liveComm.Rank() == 0 {
		plate = make([]float64, m.gridSize*w)
	}
	if err := mpi.Gatherv(ctx, m.liveComm, m.savedState.ownBlock.cells, plate, counts, displs, 0); err != nil {
		return checkpoint{}, err
	}
	if m.liveComm.Rank() == 0 && !slices.Equal(plate, uninterrupted(m.gridSize, m.stepCount)) {
		return checkpoint{}, fmt.Errorf("check failed: the plate differs from that of an uninterrupted run")
	}
	return m.savedState, nil
}
