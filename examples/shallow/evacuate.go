package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/ferrympi/ferry/mpi"
)

// evacuate returns the checkpoint with all rows in the members that stay. If fewer than two members
// stay, the rows become data of the new main set as well. Added processes read them there.
func (m *member) evacuate(ctx context.Context, p plan) (state checkpoint, err error) {
	state = m.savedState
	if slices.Contains(p.StaysByRank, false) && slices.Contains(p.StaysByRank, true) {
		if state, err = m.replicate(ctx, m.savedState, p.StaysByRank); err != nil {
			return state, err
		}
		state.otherCopies = append(state.otherCopies, m.savedState.otherCopies...) // Needed if the change is undone.
	}
	if p.IsPublished {
		err = m.publish(ctx, p.MainPset)
	}
	if errors.Is(err, mpi.ErrPset) {
		err = nil // The change has been undone, which Integrate reports.
	}
	return state, err
}

// published is the state of the job as data of a set.
type published struct {
	Step          int64
	WaterTime     float64
	ChangeCount   int64
	RecoveryCount int64
}

const publishedKey = "state"

func rowKey(row int) string { return fmt.Sprint("row/", row) }

// publish stores the rows of this rank as data of a set.
func (m *member) publish(ctx context.Context, pset string) error {
	for i := range len(m.savedState.ownBlock.cells) / m.gridSize {
		if err := m.publishValue(ctx, pset, rowKey(m.savedState.ownBlock.firstRow+i), floats(m.savedState.ownBlock.cells[i*m.gridSize:(i+1)*m.gridSize])); err != nil {
			return err
		}
	}
	if m.comm.Rank() != 0 {
		return nil
	}
	return m.publishValue(ctx, pset, publishedKey, published{int64(m.savedState.atStep), m.savedState.waterTime, int64(m.changeCount), int64(m.recoveryCount)})
}

func (m *member) publishValue(ctx context.Context, pset, key string, value any) error {
	text, err := binary.Append(nil, binary.LittleEndian, value)
	if err != nil {
		return err
	}
	return m.session.PublishData(ctx, pset, key, text)
}

// fetch gets the checkpoint of an added process from the data of the main set, if fewer than two members have rows.
func (m *member) fetch(ctx context.Context, pset string) error {
	added, err := m.session.Group(ctx, "mpi://WORLD")
	if err != nil {
		return err
	}
	main, err := m.session.Group(ctx, pset)
	if err != nil || main.Difference(added).Size() > 1 {
		return err
	}
	var state published
	if err := m.lookUp(ctx, pset, publishedKey, &state); err != nil {
		return err
	}
	m.changeCount, m.recoveryCount = int(state.ChangeCount), int(state.RecoveryCount)
	rank, ranks := main.Rank(), main.Size()
	m.savedState = checkpoint{atStep: int(state.Step), waterTime: state.WaterTime}
	if m.savedState.ownBlock, err = m.fetchBlock(ctx, pset, rank, ranks); err != nil || ranks == 1 {
		return err
	}
	replica, err := m.fetchBlock(ctx, pset, (rank+ranks-1)%ranks, ranks)
	m.savedState.otherCopies = []block{replica}
	return err
}

// fetchBlock gets the rows of a rank.
func (m *member) fetchBlock(ctx context.Context, pset string, rank, ranks int) (block, error) {
	first, rows := share(m.gridSize, rank, ranks)
	b := block{firstRow: first}
	numbers := make([]float64, 3*m.gridSize)
	for row := first; row < first+rows; row++ {
		if err := m.lookUp(ctx, pset, rowKey(row), numbers); err != nil {
			return b, err
		}
		b.cells = append(b.cells, cells(numbers)...)
	}
	return b, nil
}

func (m *member) lookUp(ctx context.Context, pset, key string, value any) error {
	text, err := m.session.LookupData(ctx, pset, key)
	if err != nil {
		return err
	}
	if _, err := binary.Decode(text, binary.LittleEndian, value); err != nil {
		return fmt.Errorf("%s of %s: %w", key, pset, err)
	}
	return nil
}

// floats returns the numbers of some cells.
func floats(cells []cell) (numbers []float64) {
	for _, c := range cells {
		numbers = append(numbers, c.h, c.hu, c.hv)
	}
	return numbers
}

// cells is the inverse of floats.
func cells(numbers []float64) (cells []cell) {
	for n := range slices.Chunk(numbers, 3) {
		cells = append(cells, cell{n[0], n[1], n[2]})
	}
	return cells
}
