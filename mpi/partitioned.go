package mpi

import (
	"fmt"

	"github.com/ferrympi/ferry/internal/mem"
)

// PsendInit initializes a partitioned send (MPI_Psend_init, MPI-4.1 chapter 4). It is a persistent send of a buffer in
// partitions of equal length. After each Start, the program fills the partitions and marks each of them as ready, once and
// in any order (Pready), also by several goroutines concurrently. The operation is complete when all partitions are
// ready and sent. The library reads no partition before it is ready.
//
// The receiver calls PrecvInit. The n-th partitioned send of a rank to another with a tag, on a communicator, matches
// the n-th partitioned receive there, in the order of the initializations. The numbers of partitions may differ. The
// lengths of the buffers are equal. Otherwise Wait returns ErrTruncate on both sides. The n-th starts of both belong
// together. Payload is sent after both sides have started. Messages of other calls never match.
//
// The initialization is local. The operation cannot be canceled. If the communicator is closed while the operation is active, the
// operation still completes. Session.Close returns ErrPending before.
//
// Errors are ErrPartition if partitions is less than 1 or does not divide the length of buf, ErrRank, ErrTag and ErrClosed.
// Errors of Wait are those of a send.
func (c *Comm) PsendInit(buf []byte, partitions, dst, tag int) (*Persistent, error) {
	if err := checkPartitions(len(buf), partitions, "bytes"); err != nil {
		return nil, err
	}
	if _, err := c.initSend(nil, dst, tag); err != nil {
		return nil, err
	}
	o := &partitioned{c: c, isSend: true, buf: buf, form: c.formOf(buf), partitionCount: partitions, partitionSize: len(buf) / partitions, peer: dst, tag: tag}
	o.send.states = make([]byte, partitions)
	return o.persistent()
}

// PrecvInit initializes a partitioned receive (MPI_Precv_init), see PsendInit. Parrived reports partitions that have arrived. The caller
// may read them before the operation is complete. The source and the tag are no wildcards (ErrUnsupported), because
// matching is at the initialization. Other errors are those of PsendInit.
func (c *Comm) PrecvInit(buf []byte, partitions, src, tag int) (*Persistent, error) {
	if err := checkPartitions(len(buf), partitions, "bytes"); err != nil {
		return nil, err
	}
	if src == AnySource || tag == AnyTag {
		return nil, fmt.Errorf("%w: a partitioned receive from any source or with any tag, since it matches at its initialization; use a rank and a tag", ErrUnsupported)
	}
	if _, err := c.initRecv(nil, src, tag); err != nil {
		return nil, err
	}
	o := &partitioned{c: c, buf: buf, partitionCount: partitions, partitionSize: len(buf) / partitions, peer: src, tag: tag}
	o.recv.missingBytes = make([]int, partitions)
	return o.persistent()
}

func checkPartitions(length, partitions int, unit string) error {
	switch {
	case partitions < 1:
		return fmt.Errorf("%w: %d partitions; at least 1 is needed", ErrPartition, partitions)
	case length%partitions != 0:
		return fmt.Errorf("%w: %d %s in %d partitions; use a number that divides the length", ErrPartition, length, unit, partitions)
	}
	return nil
}

// persistent returns the operation for users.
func (o *partitioned) persistent() (*Persistent, error) {
	o.Init(o.c.rankState.engine, o)
	if o.peer != ProcNull {
		if err := o.c.partitions.join(o); err != nil {
			return nil, err
		}
	}
	return &Persistent{startRequest: o.start, partitionedOp: o}, nil
}

// PsendInit is (*Comm).PsendInit of elements.
func PsendInit[T any](c *Comm, buf []T, partitions, dst, tag int) (*Persistent, error) {
	if err := sendable[T](); err != nil {
		return nil, err
	}
	if err := checkPartitions(len(buf), partitions, "elements"); err != nil {
		return nil, err
	}
	return c.PsendInit(mem.Bytes(buf), partitions, dst, tag)
}

// PrecvInit is (*Comm).PrecvInit of elements.
func PrecvInit[T any](c *Comm, buf []T, partitions, src, tag int) (*Persistent, error) {
	if err := sendable[T](); err != nil {
		return nil, err
	}
	if err := checkPartitions(len(buf), partitions, "elements"); err != nil {
		return nil, err
	}
	return c.PrecvInit(mem.Bytes(buf), partitions, src, tag)
}

// Pready marks a partition of a started partitioned send as ready (MPI_Pready). The partition stays unchanged until
// the operation is complete. Several goroutines may call Pready concurrently.
//
// ErrPartition if the partition is out of range, or ready already in this round; ErrClosed if the operation is not
// started; ErrUnsupported if it is not a partitioned send. If the operation has failed, the error is that of Wait.
func (p *Persistent) Pready(partition int) error { return p.PreadyRange(partition, partition) }

// PreadyRange is Pready of the partitions first to last, last included (MPI_Pready_range). After an error, none of them
// is ready.
func (p *Persistent) PreadyRange(first, last int) error {
	o, err := p.partitioned(true)
	if err != nil {
		return err
	}
	return o.markReady([2]int{first, last})
}

// PreadyList is Pready of several partitions (MPI_Pready_list). After an error, none of them is ready.
func (p *Persistent) PreadyList(partitions ...int) error {
	o, err := p.partitioned(true)
	if err != nil {
		return err
	}
	spans := make([][2]int, len(partitions))
	for i, partition := range partitions {
		spans[i] = [2]int{partition, partition}
	}
	return o.markReady(spans...)
}

// Parrived reports whether a partition of a partitioned receive has arrived in the current round (MPI_Parrived). It makes
// progress. The partitions are those of PrecvInit. The sender may have another number. It is true for an inactive operation.
//
// ErrPartition if the partition is out of range; ErrUnsupported if the operation is not a partitioned receive;
// ErrClosed after Free. If the operation has failed, the error is that of Wait.
func (p *Persistent) Parrived(partition int) (bool, error) {
	o, err := p.partitioned(false)
	if err != nil {
		return false, err
	}
	return o.hasArrived(partition)
}

// partitioned returns the operation if it is a partitioned send or receive.
func (p *Persistent) partitioned(isSend bool) (*partitioned, error) {
	if p == nil || p.startRequest == nil {
		return nil, errInactive()
	}
	if p.partitionedOp == nil || p.partitionedOp.isSend != isSend {
		kind := "receive"
		if isSend {
			kind = "send"
		}
		return nil, fmt.Errorf("%w: the operation is not a partitioned %s", ErrUnsupported, kind)
	}
	return p.partitionedOp, nil
}
