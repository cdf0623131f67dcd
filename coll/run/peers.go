package run

import (
	"context"
	"errors"
	"math/bits"
	"slices"
	"sync"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/pml"
)

// peers implements coll.Peers for a schedule that runs inline. A communicator has at most one such
// schedule at a time, so that peers needs no lock.
type peers struct {
	collState *State
	// Of the operation's messages.
	tag int
	// Of the algorithm, if any.
	instance coll.Instance
	call     coll.Call // The operation.
	// Not nil if a combination still uses the memory of the call after its end.
	lateErr error
	// Step of the instance that the call waits for.
	pendingStep pendingStep
	// From firstPending on.
	pendingRequests []*pml.Request
	firstPending    int
	// Free pieces of working memory, the smallest first.
	freeScratch [][]byte
}

// begin begins an operation.
func (p *peers) begin(tag int) {
	p.tag, p.pendingRequests, p.firstPending, p.lateErr = tag, p.pendingRequests[:0], 0, nil
}

// Send implements coll.Peers.
func (p *peers) Send(buf []byte, to int) (isDone bool, err error) {
	env := &p.collState.env
	b := env.buffer(buf)
	e := env.RankResources.engine
	e.Lock()
	r, err := env.PML.StartSend(b, to, p.tag, pml.Collective, pml.Standard)
	if err == nil {
		if isDone = r.TakeDone(r.Generation(), nil); !isDone {
			p.pendingRequests = append(p.pendingRequests, r)
			if !r.Done() {
				r.Notify(p)
			}
		}
	}
	e.Release()
	return isDone, err
}

// Completed implements pml.Notifier for sends. One that fails ends the operation, which may
// be waiting for a message. Lock held.
func (p *peers) Completed(r *pml.Request) {
	err := r.Status.Err
	if err == nil || r.Status.Canceled {
		return
	}
	p.collState.env.Host.Spawn(func(context.Context) { p.collState.Abort(err) })
}

// StartRecv implements coll.Peers.
func (p *peers) StartRecv(buf []byte, from int) error {
	r, err := p.collState.env.PML.Irecv(pml.Buffer{Bytes: buf}, from, p.tag, pml.Collective)
	if err == nil {
		p.pendingRequests = append(p.pendingRequests, r)
	}
	return err
}

// Recv implements coll.Peers.
func (p *peers) Recv(ctx context.Context, buf []byte, from int) (int, error) {
	st, err := p.collState.env.PML.Recv(ctx, pml.Buffer{Bytes: buf}, from, p.tag, pml.Collective)
	return st.Bytes, err
}

// Finish implements coll.Peers. A send that its PML cannot withdraw when ctx ends is a
// pml.PendingError, as in Comm.Send.
func (p *peers) Finish(ctx context.Context) (int, error) {
	r := p.pendingRequests[p.firstPending]
	p.firstPending++
	e := r.Engine() // The process's for a receive from a network that matches.
	e.Lock()
	st, err := r.Conclude(ctx)
	e.Release()
	return st.Bytes, err
}

// Drop implements coll.Peers. A send that cannot be withdrawn continues with undefined
// contents. The instance is that of the last call with an instance. Its error is in lateErr.
func (p *peers) Drop() {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for p.firstPending < len(p.pendingRequests) {
		_, err := p.Finish(ended)
		if late, ok := errors.AsType[*pml.PendingError](err); ok {
			_ = late.Request.Free(late.Request.Generation())
		}
	}
	p.lateErr = withdrawBuffers(p.instance, &p.call)
}

// Limits of the working memory that a communicator keeps. No operation uses more pieces at a time.
// The communicators of an engine share larger pieces.
const (
	scratchPieces = 2
	scratchLimit  = 64 << 10
)

// Pieces are free pieces of working memory above scratchLimit, by size class. The garbage collector
// frees unused ones. Allocating 64 KiB for each operation would take longer than the operation, 20
// us for clearing against 7 us.
type Pieces [largeLimit + 1]sync.Pool

// largeLimit is the size of the largest that is kept, as a power of two: 16 MiB.
const largeLimit = 24

// sizeClass is the power of two that has n bytes.
func sizeClass(n int) int { return bits.Len(uint(n - 1)) }

// Take returns n bytes, aligned for every element type, with undefined contents.
func (l *Pieces) Take(n int) []byte {
	class := sizeClass(n)
	if class <= largeLimit {
		if b, ok := l[class].Get().(*[]byte); ok {
			return (*b)[:n]
		}
	}
	return make([]byte, n, 1<<class)
}

// Give takes a piece back.
func (l *Pieces) Give(b []byte) {
	if class := sizeClass(cap(b)); class <= largeLimit && cap(b) == 1<<class {
		l[class].Put(&b)
	}
}

// Scratch implements coll.Peers. It returns n bytes of working memory, aligned for every element
// type, with undefined contents. It prefers the smallest kept piece that is large enough.
func (p *peers) Scratch(n int) []byte {
	if n > scratchLimit {
		return p.collState.env.RankResources.pieces.Take(n)
	}
	i := p.firstOf(n)
	if i == len(p.freeScratch) {
		// A power of two of at least 64 bytes. Pieces can be reused for other sizes, and Go aligns
		// such sizes to 8 bytes.
		return make([]byte, n, max(64, 1<<sizeClass(n)))
	}
	b := p.freeScratch[i]
	p.freeScratch = slices.Delete(p.freeScratch, i, i+1)
	return b[:n]
}

// Release keeps b, in place of the smallest piece if there are enough.
func (p *peers) Release(b []byte) {
	if cap(b) > scratchLimit {
		p.collState.env.RankResources.pieces.Give(b)
		return
	}
	p.freeScratch = slices.Insert(p.freeScratch, p.firstOf(cap(b)), b)
	if len(p.freeScratch) > scratchPieces {
		p.freeScratch = slices.Delete(p.freeScratch, 0, 1)
	}
}

// firstOf returns the index of the first piece that has n bytes.
func (p *peers) firstOf(n int) int {
	for i, b := range p.freeScratch {
		if cap(b) >= n {
			return i
		}
	}
	return len(p.freeScratch)
}
