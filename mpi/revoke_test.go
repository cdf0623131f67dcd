package mpi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
	"github.com/ferrympi/ferry/mtl/mtltest"
)

// stacksOfRevoke are the parameters of the stacks that the tests of Revoke run over.
var stacksOfRevoke = map[string]map[string]string{
	"ob1+shm": {"pml": "ob1"},
	"ob1+tcp": {"pml": "ob1", "btl": "self,tcp"},
	"cm":      {"pml": "cm", "pml.cm.shared_memory": "false"},
}

// jobOf returns a job over a stack. With cm it has a network in memory.
func jobOf(size int, params map[string]string) mpitest.Job {
	network := mtltest.NewMemory(mtltest.Options{Inject: 1 << 10, MaxMessage: 1 << 20})
	return mpitest.Job{Size: size, Params: params, Options: func(int) []mpi.SessionOption {
		return []mpi.SessionOption{mpi.WithRegistry(withMTL(network.Component()))}
	}}
}

// overRevoked runs a program over each stack. Its communicator is a duplicate of the world.
func overRevoked(t *testing.T, size int, program func(ctx context.Context, world, c *mpi.Comm) error) {
	t.Helper()
	for name, params := range stacksOfRevoke {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			jobOf(size, params).Run(t, func(ctx context.Context, world *mpi.Comm) error {
				c, err := world.Dup(ctx)
				if err != nil {
					return err
				}
				if err := program(ctx, world, c); err != nil {
					return err
				}
				// Another communicator works on. A member that closes the revoked one before would end synchronous sends of
				// members that are not notified yet.
				return errors.Join(mpi.Barrier(ctx, world), c.Close())
			})
		})
	}
}

// pendingCalls are calls of rank 1 that wait for rank 0, which makes none. They return the error of the operation.
var pendingCalls = map[string]func(ctx context.Context, c *mpi.Comm) error{
	"Recv":      func(ctx context.Context, c *mpi.Comm) error { _, err := c.Recv(ctx, nil, 0, 1); return err },
	"Recv any":  func(ctx context.Context, c *mpi.Comm) error { _, err := c.Recv(ctx, nil, mpi.AnySource, 1); return err },
	"Ssend":     func(ctx context.Context, c *mpi.Comm) error { return c.Ssend(ctx, nil, 0, 1) },
	"Send":      func(ctx context.Context, c *mpi.Comm) error { return c.Send(ctx, make([]byte, 4<<20), 0, 1) },
	"Probe":     func(ctx context.Context, c *mpi.Comm) error { _, err := c.Probe(ctx, 0, 1); return err },
	"Probe any": func(ctx context.Context, c *mpi.Comm) error { _, err := c.Probe(ctx, mpi.AnySource, 1); return err },
	"Mprobe":    func(ctx context.Context, c *mpi.Comm) error { _, _, err := c.Mprobe(ctx, 0, 1); return err },
	"Sendrecv": func(ctx context.Context, c *mpi.Comm) error {
		_, err := c.Sendrecv(ctx, nil, 0, 1, nil, 0, 1)
		return err
	},
	"large Sendrecv": func(ctx context.Context, c *mpi.Comm) error {
		_, err := c.Sendrecv(ctx, make([]byte, 4<<20), 0, 1, nil, 0, 1)
		return err
	},
	"Isendrecv": func(ctx context.Context, c *mpi.Comm) error {
		return waitFor(ctx)(c.Isendrecv(nil, 0, 1, nil, 0, 1))
	},
	"large Isendrecv": func(ctx context.Context, c *mpi.Comm) error {
		return waitFor(ctx)(c.Isendrecv(make([]byte, 4<<20), 0, 1, nil, mpi.AnySource, 1))
	},
	"large IsendrecvReplace": func(ctx context.Context, c *mpi.Comm) error {
		return waitFor(ctx)(c.IsendrecvReplace(make([]byte, 4<<20), 0, 1, 0, 1))
	},
	"Barrier": func(ctx context.Context, c *mpi.Comm) error { return mpi.Barrier(ctx, c) },
	"Allreduce": func(ctx context.Context, c *mpi.Comm) error {
		return mpi.Allreduce(ctx, c, make([]int, 1<<16), make([]int, 1<<16), mpi.Sum[int]())
	},
	"persistent Barrier": func(ctx context.Context, c *mpi.Comm) error {
		p, err := mpi.BarrierInit(ctx, c)
		if err != nil {
			return err
		}
		if err := p.Start(); err != nil {
			return err
		}
		return second(p.Wait(ctx))
	},
	"second Barrier": func(ctx context.Context, c *mpi.Comm) error { return mpi.Barrier(ctx, c) },
	"Split":          func(ctx context.Context, c *mpi.Comm) error { _, err := c.Split(ctx, 0, 0); return err },
	"Create":         func(ctx context.Context, c *mpi.Comm) error { _, err := c.Create(ctx, c.Group()); return err },
	"CreateGroup":    func(ctx context.Context, c *mpi.Comm) error { _, err := c.CreateGroup(ctx, c.Group(), 1); return err },
	"NewThreadComm":  func(ctx context.Context, c *mpi.Comm) error { _, err := mpi.NewThreadComm(ctx, c, 2); return err },
}

// waitFor returns the error of a nonblocking operation.
func waitFor(ctx context.Context) func(mpi.Request, error) error {
	return func(q mpi.Request, err error) error {
		if err == nil {
			_, err = q.Wait(ctx)
		}
		return err
	}
}

func TestRevoke_BlockedCalls_ReturnErrRevoked(t *testing.T) {
	t.Parallel()
	for _, name := range slices.Sorted(maps.Keys(pendingCalls)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			overRevoked(t, 3, func(ctx context.Context, world, c *mpi.Comm) error {
				if name == "second Barrier" { // In shared memory, where there is some.
					for range 2 {
						if err := errors.Join(mpi.Barrier(ctx, c), mpi.Barrier(ctx, world)); err != nil {
							return err
						}
					}
				}
				switch c.Rank() {
				case 0:
					if _, err := world.Recv(ctx, nil, 1, 0); err != nil {
						return err
					}
					return c.Revoke()
				case 1:
					if err := world.Send(ctx, nil, 0, 0); err != nil {
						return err
					}
				}
				err := pendingCalls[name](ctx, c)
				if name == "Send" && err == nil { // A network may complete it when the receiver drops the message.
					return nil
				}
				return wants(name, err, mpi.ErrRevoked)
			})
		})
	}
}

// nonblockingCalls are calls that start an operation with rank 0, and return its error from wait.
var nonblockingCalls = map[string]func(c *mpi.Comm) (wait func(context.Context) error, err error){
	"Irecv":     func(c *mpi.Comm) (func(context.Context) error, error) { return waitOf(c.Irecv(nil, 0, 1)) },
	"Irecv any": func(c *mpi.Comm) (func(context.Context) error, error) { return waitOf(c.Irecv(nil, mpi.AnySource, 1)) },
	"Isend": func(c *mpi.Comm) (func(context.Context) error, error) {
		return waitOf(c.Isend(make([]byte, 4<<20), 0, 1))
	},
	"Issend":   func(c *mpi.Comm) (func(context.Context) error, error) { return waitOf(c.Issend(nil, 0, 1)) },
	"Ibarrier": func(c *mpi.Comm) (func(context.Context) error, error) { return waitOf(mpi.Ibarrier(c)) },
	"Iallgather": func(c *mpi.Comm) (func(context.Context) error, error) {
		return waitOf(mpi.Iallgather(c, []int{1}, make([]int, c.Size())))
	},
	"RecvInit":  func(c *mpi.Comm) (func(context.Context) error, error) { return persistentCall(c.RecvInit(nil, 0, 1)) },
	"SsendInit": func(c *mpi.Comm) (func(context.Context) error, error) { return persistentCall(c.SsendInit(nil, 0, 1)) },
	"IrecvLayout": func(c *mpi.Comm) (func(context.Context) error, error) {
		return waitOf(c.IrecvLayout(make([]byte, 8), mpi.Vector(2, 2, 4), 0, 1))
	},
}

func waitOf(q mpi.Request, err error) (func(context.Context) error, error) {
	return func(ctx context.Context) error {
		i, st, err := mpi.WaitAny(ctx, []mpi.Request{{}, q})
		return errors.Join(err, must(i == 1 && errors.Is(err, st.Err), "request %d: %+v %v", i, st, err))
	}, err
}

func persistentCall(p *mpi.Persistent, err error) (func(context.Context) error, error) {
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		_, err := p.Wait(ctx)
		if started := p.Start(); started != nil { // It is inactive, and starts again.
			return started
		}
		if _, again := p.Wait(ctx); !errors.Is(again, mpi.ErrRevoked) {
			return fmt.Errorf("wait for an operation that was started again: %w", again)
		}
		return errors.Join(err, p.Free())
	}, p.Start()
}

func TestRevoke_NonblockingOperations_WaitReturnsErrRevoked(t *testing.T) {
	t.Parallel()
	overRevoked(t, 3, func(ctx context.Context, world, c *mpi.Comm) error {
		waits := map[string]func(context.Context) error{}
		start := func(when string) error {
			if c.Rank() == 0 {
				return nil
			}
			for name, call := range nonblockingCalls {
				wait, err := call(c)
				if err != nil {
					return fmt.Errorf("start of %s %s: %w", name, when, err)
				}
				waits[name+" "+when] = wait
			}
			return nil
		}
		if err := errors.Join(start("before"), mpi.Barrier(ctx, world)); err != nil {
			return err
		}
		if c.Rank() == 0 {
			if err := c.Revoke(); err != nil {
				return err
			}
		}
		for name, wait := range waits {
			if err := wait(ctx); err != nil || name != "Isend before" { // As Send.
				if err := wants(name, err, mpi.ErrRevoked); err != nil {
					return err
				}
			}
		}
		clear(waits)
		if err := start("after"); err != nil {
			return err
		}
		for name, wait := range waits {
			if err := wants(name, wait(ctx), mpi.ErrRevoked); err != nil {
				return err
			}
		}
		return nil
	})
}

func TestRevoke_LaterCalls_ReturnErrRevokedUnlessTheyAreLocal(t *testing.T) {
	t.Parallel()
	overRevoked(t, 2, func(ctx context.Context, world, c *mpi.Comm) error {
		if c.Revoked() {
			return errors.New("a new communicator is revoked")
		}
		if err := c.Send(ctx, nil, 1-c.Rank(), 7); err != nil { // A message that is there.
			return err
		}
		if _, err := c.Probe(ctx, 1-c.Rank(), 7); err != nil {
			return err
		}
		if err := mpi.Barrier(ctx, world); err != nil {
			return err
		}
		if c.Rank() == 0 {
			if err := errors.Join(c.Revoke(), c.Revoke()); err != nil {
				return err
			}
		} else if err := revoked(ctx, c); err != nil {
			return err
		}
		errs := map[string]error{"Revoke": must(c.Revoke() == nil && c.Revoked(), "revoking again")}
		for name, call := range pendingCalls {
			errs[name] = wants(name, call(ctx, c), mpi.ErrRevoked)
		}
		_, err := c.Recv(ctx, nil, 1-c.Rank(), 7)
		errs["Recv of a message that is there"] = wants("Recv of a message that is there", err, mpi.ErrRevoked)
		_, _, err = c.Iprobe(1-c.Rank(), 7)
		errs["Iprobe"] = wants("Iprobe", err, mpi.ErrRevoked)
		_, _, _, err = c.Improbe(mpi.AnySource, 7)
		errs["Improbe"] = wants("Improbe", err, mpi.ErrRevoked)
		errs["null Send"] = wants("null Send", c.Send(ctx, nil, mpi.ProcNull, 7), mpi.ErrRevoked)
		errs["Bsend"] = wants("Bsend", c.Bsend(ctx, nil, 1-c.Rank(), 7), mpi.ErrRevoked)
		errs["Ibsend"] = wants("Ibsend", waitFor(ctx)(c.Ibsend(nil, 1-c.Rank(), 7)), mpi.ErrRevoked)
		errs["FlushBuffer"] = c.FlushBuffer(ctx)
		_, err = c.Dup(ctx)
		errs["Dup"] = wants("Dup", err, mpi.ErrRevoked)
		idup, err := c.Idup()
		if errs["Idup"] = err; err == nil {
			_, err := idup.Wait(ctx)
			errs["Idup"] = wants("Idup", err, mpi.ErrRevoked)
		}
		_, err = c.Transport(0)
		errs["Transport"] = err
		_, err = c.Inspect()
		errs["Inspect"] = err
		errs["local calls"] = must(c.Size() == 2 && c.Group().Size() == 2 && len(c.Failed()) == 0 && c.AckFailed(1) == 0, "local calls")
		errs["wrong rank"] = wants("wrong rank", c.Send(ctx, nil, 9, 7), mpi.ErrRank)
		for _, err := range errs {
			if err != nil {
				return err
			}
		}
		d, err := world.Dup(ctx)
		if err != nil {
			return err
		}
		if err := d.Close(); err != nil {
			return err
		}
		return errors.Join(wants("Revoke of a closed communicator", d.Revoke(), mpi.ErrClosed), must(!d.Revoked(), "a closed communicator is revoked"))
	})
}

// revoked waits until a communicator is revoked.
func revoked(ctx context.Context, c *mpi.Comm) error {
	_, err := c.Recv(ctx, nil, c.Rank(), 1000)
	return errors.Join(wants("receive without a message", err, mpi.ErrRevoked), must(c.Revoked(), "it is not revoked"))
}

func TestRevoke_AllMembersAtOnce_IsHarmless(t *testing.T) {
	t.Parallel()
	overRevoked(t, 8, func(ctx context.Context, world, c *mpi.Comm) error {
		for range 5 {
			if err := mpi.Barrier(ctx, world); err != nil {
				return err
			}
			d, err := world.Dup(ctx)
			if err != nil {
				return err
			}
			if err := errors.Join(d.Revoke(), wants("Barrier", mpi.Barrier(ctx, d), mpi.ErrRevoked), d.Close()); err != nil {
				return err
			}
		}
		return nil
	})
}

// The first member of a group that is revoked sends no other reason to the rest.
func TestRevoke_CreateGroupOfARevokedMember_ReturnsErrRevokedInAll(t *testing.T) {
	t.Parallel()
	overRevoked(t, 4, func(ctx context.Context, world, _ *mpi.Comm) error {
		for range 20 {
			c, err := world.Dup(ctx)
			if err != nil {
				return err
			}
			if c.Rank() == 0 {
				if err := c.Revoke(); err != nil {
					return err
				}
			}
			_, err = c.CreateGroup(ctx, c.Group(), 1)
			if err := errors.Join(wants("CreateGroup", err, mpi.ErrRevoked), mpi.Barrier(ctx, world), c.Close()); err != nil {
				return err
			}
		}
		return nil
	})
}

func TestRevoke_OtherCommunicators_WorkOn(t *testing.T) {
	t.Parallel()
	overRevoked(t, 4, func(ctx context.Context, world, c *mpi.Comm) error {
		dup, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		half, err := c.Split(ctx, c.Rank()%2, 0)
		if err != nil {
			return err
		}
		tc, err := mpi.NewThreadComm(ctx, c, 2)
		if err != nil {
			return err
		}
		if err := mpi.Barrier(ctx, world); err != nil {
			return err
		}
		if c.Rank() == 3 {
			err = c.Revoke()
		} else {
			err = revoked(ctx, c)
		}
		if err != nil {
			return err
		}
		for _, x := range []*mpi.Comm{dup, half, world} {
			peer := x.Size() - 1 - x.Rank()
			if _, err := x.Sendrecv(ctx, nil, peer, 0, nil, peer, 0); err != nil {
				return err
			}
			if err := errors.Join(mpi.Barrier(ctx, x), must(!x.Revoked(), "another communicator is revoked")); err != nil {
				return err
			}
		}
		err = tc.Run(ctx, func(ctx context.Context, r *mpi.Comm) error { return mpi.Barrier(ctx, r) })
		return errors.Join(err, tc.Close(), dup.Close(), half.Close())
	})
}

func TestRevoke_CommunicatorIsNotHereYet_IsRevokedWhenItIsMade(t *testing.T) {
	t.Parallel()
	overRevoked(t, 2, func(ctx context.Context, world, c *mpi.Comm) error {
		if c.Rank() == 0 {
			d, err := c.Dup(ctx)
			if err != nil {
				return err
			}
			// The revocation of c comes after that of d.
			return errors.Join(d.Revoke(), c.Revoke(), d.Close())
		}
		d, err := c.Dup(ctx)
		if err != nil {
			return wants("Dup of a revoked communicator", err, mpi.ErrRevoked)
		}
		return errors.Join(revoked(ctx, d), d.Close())
	})
	overRevoked(t, 2, func(ctx context.Context, world, c *mpi.Comm) error {
		if c.Rank() == 0 {
			d, err := world.Dup(ctx)
			if err != nil {
				return err
			}
			return errors.Join(d.Revoke(), c.Revoke(), d.Close())
		}
		if err := revoked(ctx, c); err != nil {
			return err
		}
		d, err := world.Dup(ctx)
		if err != nil {
			return err
		}
		return errors.Join(must(d.Revoked(), "a communicator that was revoked before it is made is not revoked"), d.Close())
	})
}

// A member that derives no further ids refuses a communicator that others have created.
func TestRevoke_DuplicateInSomeMembersOnly_IsNotWaitedFor(t *testing.T) {
	t.Parallel()
	overRevoked(t, 3, func(ctx context.Context, world, c *mpi.Comm) error {
		switch c.Rank() {
		case 0:
			d, err := c.Dup(ctx)
			if err != nil {
				return err
			}
			if err := c.Revoke(); err != nil {
				return err
			}
			_, err = d.Recv(ctx, nil, 1, 0)
			return errors.Join(wants("receive of a member that is not in the duplicate", err, framework.ErrNotMember), d.Close())
		}
		return revoked(ctx, c) // and no other call
	})
}

// The end of a collective may not see a revocation that comes at the same time.
func TestAgree_CollectiveEndsWithTheRevocation_DuplicateIsRefused(t *testing.T) {
	t.Parallel()
	overRevoked(t, 2, func(ctx context.Context, world, c *mpi.Comm) error {
		if c.Rank() == 1 {
			release := mpi.HoldCollectives(c)
			if err := errors.Join(world.Send(ctx, nil, 0, 1), revoked(ctx, c)); err != nil {
				return err
			}
			release()
			_, err := c.Agree(ctx, 0)
			return err
		}
		if _, err := world.Recv(ctx, nil, 1, 1); err != nil {
			return err
		}
		d, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		if err := c.Revoke(); err != nil {
			return err
		}
		_, err = d.Recv(ctx, nil, 1, 0)
		_, agreed := c.Agree(ctx, 0)
		return errors.Join(wants("receive of a member that is not in the duplicate", err, framework.ErrNotMember), agreed, d.Close())
	})
}

func TestRevoke_MatchedMessage_IsReceived(t *testing.T) {
	t.Parallel()
	overRevoked(t, 2, func(ctx context.Context, world, c *mpi.Comm) error {
		return errors.Join(matchedIsReceived(ctx, world, 10), matchedIsReceived(ctx, world, 4<<20))
	})
}

// matchedIsReceived revokes a duplicate of world between the match of a message of n bytes and its receive.
func matchedIsReceived(ctx context.Context, world *mpi.Comm, n int) error {
	d, err := world.Dup(ctx)
	if err != nil {
		return err
	}
	payload := bytes.Repeat([]byte{7}, n)
	if d.Rank() == 0 {
		q, err := d.Issend(payload, 1, 1)
		if err != nil {
			return err
		}
		if err := revoked(ctx, d); err != nil {
			return err
		}
		if _, err := q.Wait(ctx); err != nil {
			return fmt.Errorf("send that has matched: %w", err)
		}
		return d.Close()
	}
	m, _, err := d.Mprobe(ctx, 0, 1)
	if err != nil {
		return err
	}
	if err := d.Revoke(); err != nil {
		return err
	}
	buf := make([]byte, n)
	if _, err := m.Recv(ctx, buf); err != nil {
		return err
	}
	return errors.Join(must(bytes.Equal(buf, payload), "the payload differs"), d.Close())
}

// Goroutine ranks are notified by those of their process, also before they have the communicator.
func TestRevoke_GoroutineRanks_AllAreRevoked(t *testing.T) {
	t.Parallel()
	overRevoked(t, 2, func(ctx context.Context, world, c *mpi.Comm) error {
		tc, err := mpi.NewThreadComm(ctx, c, 3)
		if err != nil {
			return err
		}
		err = tc.Run(ctx, func(ctx context.Context, r *mpi.Comm) error {
			d, err := r.Dup(ctx)
			if err != nil {
				return err
			}
			if r.Rank() == 4 {
				err = d.Revoke()
			} else {
				err = revoked(ctx, d)
			}
			return errors.Join(err, mpi.Barrier(ctx, r), d.Close())
		})
		return errors.Join(err, must(!c.Revoked(), "the parent is revoked"), tc.Close())
	})
}

// The caller fails when one member is notified.
func TestRevoke_CallerDies_ReachesAllMembers(t *testing.T) {
	t.Parallel()
	survivors(t, "revokeanddie", 5, 1)
}

func revokeAndDie(ctx context.Context, _ *mpi.Session, world *mpi.Comm) error {
	c, err := world.Dup(ctx)
	if err != nil {
		return err
	}
	if c.Rank() == 4 {
		if err := errors.Join(c.Revoke(), dies(ctx, world, 0)); err != errDies {
			return err
		}
		os.Exit(1)
	}
	// The message of a live member does not come.
	_, err = c.Recv(ctx, nil, (c.Rank()+1)%4, 1)
	if err := wants("receive from a live member", err, mpi.ErrRevoked); err != nil {
		return err
	}
	if c.Rank() == 0 {
		if err := world.Send(ctx, nil, 4, 99); err != nil {
			return err
		}
	}
	return c.Close()
}
