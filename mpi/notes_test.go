package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
)

// noteCopier sends each note, and other notes with it.
type noteCopier struct {
	*injector
	garble func(body []byte) [][]byte
}

func (c *noteCopier) Note(p framework.Proc, nonce uint64, body []byte) error {
	inner, _ := framework.As[bootstrap.Noter](c.injector.Client)
	for _, b := range c.garble(body) {
		if err := inner.Note(p, nonce, b); err != nil {
			return err
		}
	}
	return inner.Note(p, nonce, body)
}

// garbled returns notes that no correct process sends.
func garbled(body []byte) [][]byte {
	changed := func(i int, b byte) []byte {
		c := append([]byte(nil), body...)
		c[i] ^= b
		return c
	}
	return [][]byte{
		{}, body[:5], body[:len(body)-1], append(body[:len(body):len(body)], 0),
		changed(16+3, 1),         // The rank of the receiver.
		changed(22, 0x80),        // That of the sender, out of range.
		changed(25, 2),           // Likewise, another member.
		changed(27, 1),           // The endpoint of the sender.
		changed(len(body)-1, 66), // The message.
	}
}

func TestNotes_Garbled_AreDroppedAndCounted(t *testing.T) {
	t.Parallel()
	overNotes(t, garbled, func(c *mpi.Comm) error {
		return must(mpi.NotesDropped(c) > 0, "no note is dropped")
	})
}

func TestNotes_UnknownCommunicator_AreIgnored(t *testing.T) {
	t.Parallel()
	overNotes(t, func(body []byte) [][]byte {
		c := append([]byte(nil), body...)
		c[0] ^= 1
		return [][]byte{c}
	}, func(*mpi.Comm) error { return nil })
}

func TestNotes_Repeated_ChangeNothing(t *testing.T) {
	t.Parallel()
	overNotes(t, func(body []byte) [][]byte { return [][]byte{body, body} }, func(*mpi.Comm) error { return nil })
}

func TestNotes_Lost_AreRepeated(t *testing.T) {
	t.Parallel()
	const ranks = 3
	mpitest.Job{Size: ranks}.RunSessions(t, func(ctx context.Context) error {
		client := &noteLoser{injector: inject(mpitest.Client(ctx))}
		return worldProgram(func(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
			var sent int
			client.lose = func() bool { sent++; return sent%2 == 1 } // The first one of each rank, and others.
			d, err := c.Shrink(ctx)
			if err != nil {
				return err
			}
			return errors.Join(isWhole(ctx, d, 0, 1, 2), d.Close())
		}).over(client.open)(ctx)
	})
}

// In Open MPI, members wait for each other after such a failure (open-mpi/ompi #11261).
func TestShrink_CoordinatorDiesAfterSomeNotes_OutcomesAreUniform(t *testing.T) {
	for notes := range 8 {
		t.Run(fmt.Sprint(notes), func(t *testing.T) {
			t.Parallel()
			const ranks = 4
			var ids [ranks]mpi.CommID
			mpitest.Job{Size: ranks}.RunSessions(t, func(ctx context.Context) error {
				client := &noteLoser{injector: inject(mpitest.Client(ctx))}
				return worldProgram(func(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
					if c.Rank() == 0 {
						return sendsAndDies(ctx, c, client, notes)
					}
					d, err := c.Shrink(ctx)
					if err != nil {
						return err
					}
					ids[c.Rank()] = d.ID()
					if d.Size() == ranks { // Rank 0 has proposed an outcome.
						if err := d.Close(); err != nil {
							return err
						}
						if d, err = c.Shrink(ctx); err != nil {
							return err
						}
					}
					return errors.Join(isWhole(ctx, d, 1, 2, 3), d.Close())
				}).over(client.open)(ctx)
			})
			if ids[1] != ids[2] || ids[1] != ids[3] || ids[1] == (mpi.CommID{}) {
				t.Errorf("ids are %v", ids)
			}
		})
	}
}

// sendsAndDies is a rank that dies in Shrink after it has sent a number of notes.
func sendsAndDies(ctx context.Context, c *mpi.Comm, client *noteLoser, notes int) error {
	sent, ended := make(chan struct{}), make(chan struct{})
	client.lose = func() bool {
		if notes--; notes == -1 {
			close(sent)
		}
		return notes < 0
	}
	go func() {
		defer close(ended)
		if d, err := c.Shrink(ctx); err == nil {
			_ = d.Close()
		}
	}()
	select {
	case <-sent:
	case <-ended:
	}
	_ = c.Close()
	<-ended
	mpitest.Die(ctx)
	return nil
}

// noteLoser loses notes.
type noteLoser struct {
	*injector
	mu   sync.Mutex
	lose func() bool // May be nil.
}

func (l *noteLoser) Note(p framework.Proc, nonce uint64, body []byte) error {
	l.mu.Lock()
	isLost := l.lose != nil && l.lose()
	l.mu.Unlock()
	if isLost {
		return nil
	}
	inner, _ := framework.As[bootstrap.Noter](l.injector.Client)
	return inner.Note(p, nonce, body)
}

func (l *noteLoser) open(ctx context.Context, opts ...mpi.SessionOption) (*mpi.Session, error) {
	return mpitest.Open(ctx, append(opts, mpi.WithBootstrap(l))...)
}

// overNotes runs Agree and Shrink over notes while garble adds others.
func overNotes(t *testing.T, garble func([]byte) [][]byte, check func(*mpi.Comm) error) {
	t.Helper()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	program := func(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
		_ = mpi.Barrier(over, c) // So that Agree uses notes.
		for i := range 10 {
			value, err := c.Agree(ctx, uint64(8|c.Rank()))
			if value != 8 || err != nil {
				return fmt.Errorf("agree %d: %d %w", i, value, err)
			}
			d, err := c.Shrink(ctx)
			if err != nil {
				return err
			}
			if err := errors.Join(isWhole(ctx, d, 0, 1, 2), d.Close()); err != nil {
				return err
			}
		}
		return check(c)
	}
	mpitest.Job{Size: 3}.RunSessions(t, func(ctx context.Context) error {
		client := &noteCopier{inject(mpitest.Client(ctx)), garble}
		return worldProgram(program).over(func(ctx context.Context, opts ...mpi.SessionOption) (*mpi.Session, error) {
			return mpitest.Open(ctx, append(opts, mpi.WithBootstrap(client))...)
		})(ctx)
	})
}
