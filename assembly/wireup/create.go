package wireup

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ferrympi/ferry/framework"
)

// Port is the access of one member to the others during a creation. Create calls it from one goroutine.
// Deadlines are times since the call of Create. Errors are those of bootstrap.Client and pml.Comm. A call
// that is cancelable also ends with the context of the caller.
type Port interface {
	// Ended returns the error of the context of the call, nil before its end.
	Ended() error

	// Construct makes the communicator of a level by a group construct of the bootstrap. It returns the
	// payloads of the members. The payload of this one contains faults. At level 0 it contains the candidate ids and
	// ended members for the whole group, too. It is cancelable. A level of one member needs no construct, and the Comm may be nil.
	Construct(level Level, faults Faults, deadline time.Duration) (Comm, [][]byte, error)

	// Draw returns a new context id.
	Draw() (uint64, error)

	// Share puts a table into memory that the processes of the node can read, and returns that memory and the argument of their Open.
	// It belongs to the port, which may keep it with the communicator. It returns an error if the node has no such memory, or no room in it.
	Share(table []byte) (shared, place []byte, err error)
	// Open returns the memory that the member root of level 0 has shared. It belongs to the port.
	Open(root Level, place []byte) ([]byte, error)
	// Hide removes the name of the shared memory, if there is one. It stays open where it is open.
	Hide()

	// Accept prepares this process for the communicator of a table. The ids of the table are taken. Errors of the bytes are those of BadTable.
	Accept(t *Table) error
	// Refuse reports that this process is in no communicator with the context id, although others may be.
	Refuse(id uint64, why error)
}

// Comm is the communicator of a level. Members are named by their indices in the level.
type Comm interface {
	// Send sends a message. It returns when the message has been accepted, so that it may take until the receiver receives a large one, or ends. It is not
	// cancelable. The caller does not change the message afterwards. Errors are not reported, since each receiver has a deadline.
	Send(to int, message []byte)
	// Receive returns the next message of a member. It ends with ErrProcFailed if that fails after its messages have been received. The bytes
	// are the caller's, and may not be changed.
	Receive(from int, deadline time.Duration, isCancelable bool) ([]byte, error)
	// Close ends the communicator. Messages that have been accepted are delivered.
	Close()
}

// Call is the call of one member.
type Call struct {
	Layout *Layout
	// Rank in the group.
	Member  int
	UserTag string
	Timeout time.Duration
}

// Create creates a communicator of all members of a layout, on at least two nodes. All members call it. It returns the table that they have in common.
//
// Errors are ErrTimeout and ErrProcFailed with a *framework.MissingError that names members at fault, ErrUnsupported, ErrTransport
// with the sender of an invalid message, and the cause of the caller's context. All members get an error,
// unless a member fails after its confirmation.
func Create(p Port, call Call) (*Table, error) {
	c := &creation{Call: call, port: p, levels: call.Layout.Levels(call.Member), schedule: NewSchedule(call.Layout, call.Timeout)}
	c.commByLevel = make([]Comm, len(c.levels))
	defer func() {
		for _, comm := range c.commByLevel {
			if comm != nil {
				comm.Close()
			}
		}
	}()
	payloads, fs := c.construct(0, nil)
	if c.levels[0].SelfIndex != 0 {
		if len(fs) > 0 {
			return nil, c.error(fs)
		}
		return c.follow()
	}
	var part Part
	if len(fs) == 0 {
		part, fs = c.partOf(payloads)
	}
	return c.lead(part, fs)
}

type creation struct {
	Call
	port   Port
	levels []Level
	// nil without one.
	commByLevel []Comm
	schedule    Schedule
	// Its faults are no substitute for it.
	ownErr error
	// hasConfirmed is set once the verdict counts, and no longer the context of the caller.
	hasConfirmed bool
}

// rank returns the rank in the job of a member of a level.
func (c *creation) rank(level, index int) uint32 {
	return c.Layout.Proc(c.levels[level].Members[index]).Rank
}

// self returns the rank in the job of this member.
func (c *creation) self() uint32 { return c.Layout.Proc(c.Member).Rank }

// name returns the process of a rank in the group.
func (c *creation) name(rank uint32) framework.Proc { return c.Layout.Proc(int(rank)) }

// failed returns the faults of an error of a local call, or of the exchange with the member peer.
func (c *creation) failed(err error, peer uint32) Faults {
	self := c.self()
	if ended := c.port.Ended(); ended != nil && !c.hasConfirmed {
		if m, ok := errors.AsType[*framework.MissingError](err); ok && errors.Is(ended, framework.ErrTimeout) {
			ended = fmt.Errorf("%w: %w", ended, &framework.MissingError{Op: m.Op, Tag: c.UserTag, Missing: m.Missing, Failed: m.Failed})
		}
		c.ownErr = cmp.Or(c.ownErr, ended)
		return fault(self, Canceled, "")
	}
	fs := faultsOf(err, peer, self)
	if c.ownErr == nil && slices.ContainsFunc(fs, func(f Fault) bool { return f.Rank == self }) {
		c.ownErr = err
	}
	return fs
}

// error returns the error of the call.
func (c *creation) error(fs Faults) error {
	if c.ownErr != nil {
		return c.ownErr
	}
	err := fs.err(c.Layout.namespace, c.UserTag)
	if slices.ContainsFunc(fs, Fault.mayDiffer) {
		return fmt.Errorf("%w; members with another map of the nodes or another value of bootstrap.roots_from do not meet", err)
	}
	return err
}

// construct joins a level. It returns the payloads, or faults.
func (c *creation) construct(level int, fs Faults) ([][]byte, Faults) {
	comm, payloads, err := c.port.Construct(c.levels[level], fs, c.schedule.Construct(level))
	if err != nil {
		fs := c.failed(err, c.self())
		for i := range fs {
			if level > 0 && fs[i].Kind == Missing {
				fs[i].Text = "its node may wait for another one of its processes"
			}
		}
		return nil, fs
	}
	c.commByLevel[level] = comm
	return payloads, nil
}

// partOf returns the part of the members of the node.
func (c *creation) partOf(payloads [][]byte) (Part, Faults) {
	var part Part
	for i, b := range payloads {
		p, err := DecodePayload(b)
		var one Part
		if err == nil {
			one, err = NewPart(c.levels[0].Members[i], p)
		}
		if err == nil {
			err = part.Merge(one)
		}
		if err != nil {
			return part, faultsOf(err, c.rank(0, i), c.rank(0, i))
		}
	}
	return part, nil
}

// receive returns a message of one of some kinds from a member of a level, or faults. The message is nil, Abort or Lost if there are faults.
func (c *creation) receive(level, from, child int, p phase, want ...Kind) (message, Faults) {
	b, err := c.commByLevel[level].Receive(from, c.schedule.message(p, level, child), !c.hasConfirmed)
	if err != nil {
		fs := c.failed(err, c.rank(level, from))
		for i := range fs {
			if fs[i].Kind == Missing {
				fs[i].Text = silentText
			}
		}
		return nil, fs
	}
	m, fs, err := decodeMessage(b, want...)
	if err != nil {
		return nil, fault(c.rank(level, from), Garbage, err.Error())
	}
	return m, fs
}

// open opens the table of a message, and accepts it.
func (c *creation) open(b []byte, root uint32) (*Table, Faults) {
	t, err := OpenTable(b, c.Layout.Size())
	if err != nil {
		return nil, fault(root, Garbage, err.Error())
	}
	if err := c.port.Accept(t); err != nil {
		if _, isBad := errors.AsType[badTable](err); isBad {
			return nil, fault(root, Garbage, err.Error())
		}
		return nil, c.failed(err, c.self())
	}
	return t, nil
}

// BadTable returns the error of Accept for invalid bytes of the table. The creation fails with ErrTransport, which names the root
// that has shared or sent the table.
func BadTable(err error) error { return badTable{err} }

type badTable struct{ error }
