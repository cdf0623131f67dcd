package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/ferrympi/ferry/mpi"
)

func TestCalls_ContextEnded_FailAtOnce(t *testing.T) { ranks(t, 2, inWorld(callWithEndedContext)) }

// callWithEndedContext calls all functions in rank 0 with a context that has ended. A message is pending and every send could leave at once. Nothing is sent or
// received.
func callWithEndedContext(ctx context.Context, s *mpi.Session, c *mpi.Comm) error {
	cause := errors.New("enough")
	gone, end := context.WithCancelCause(ctx)
	end(cause)
	if c.Rank() == 1 {
		if err := errors.Join(c.Send(ctx, []byte("waits"), 0, 1), mpi.Barrier(ctx, c)); err != nil {
			return err
		}
		buf := make([]byte, 8)
		st, err := c.Recv(ctx, buf, 0, mpi.AnyTag)
		if err != nil {
			return err
		}
		return must(string(buf[:st.Bytes]) == "sent", "a send whose context had ended brought %q with tag %d", buf[:st.Bytes], st.Tag)
	}
	if err := mpi.Barrier(ctx, c); err != nil {
		return err
	}
	buf := make([]byte, 8)
	vector := mpi.Vector(2, 1, 4)
	calls := map[string]func() error{
		"Send":         func() error { return c.Send(gone, nil, 1, 2) },
		"Ssend":        func() error { return c.Ssend(gone, nil, 1, 2) },
		"Bsend":        func() error { return c.Bsend(gone, nil, 1, 2) },
		"Rsend":        func() error { return c.Rsend(gone, nil, 1, 2) },
		"SendLayout":   func() error { return c.SendLayout(gone, buf, vector, 1, 2) },
		"Send nowhere": func() error { return c.Send(gone, nil, mpi.ProcNull, 2) },
		"Recv":         func() error { _, err := c.Recv(gone, buf, 1, 1); return err },
		"RecvLayout":   func() error { _, err := c.RecvLayout(gone, buf, vector, 1, 1); return err },
		"Sendrecv":     func() error { _, err := c.Sendrecv(gone, nil, 1, 2, buf, 1, 1); return err },
		"SendrecvReplace": func() error {
			_, err := c.SendrecvReplace(gone, buf, 1, 2, 1, 1)
			return err
		},
		"FlushBuffer":            func() error { return c.FlushBuffer(gone) },
		"FlushBuffer of session": func() error { return s.FlushBuffer(gone) },
		"Probe":                  func() error { _, err := c.Probe(gone, 1, 1); return err },
		"Mprobe":                 func() error { _, _, err := c.Mprobe(gone, 1, 1); return err },
		"Group":                  func() error { _, err := s.Group(gone, "mpi://WORLD"); return err },
		"PsetInfo":               func() error { _, err := s.PsetInfo(gone, "mpi://WORLD"); return err },
		"Psets":                  func() error { _, err := s.Psets(gone); return err },
		"OpenSession":            func() error { _, err := mpi.OpenSession(gone); return err },
		"Explain":                func() error { _, err := s.Explain(gone); return err },
		"CommFromGroup": func() error {
			self, err := s.Group(ctx, "mpi://SELF")
			if err == nil {
				_, err = mpi.CommFromGroup(gone, self, "over")
			}
			return err
		},
	}
	// Each breaks its communicator's collectives.
	for what, call := range map[string]func(d *mpi.Comm) error{
		"Barrier":     func(d *mpi.Comm) error { return mpi.Barrier(gone, d) },
		"Allreduce":   func(d *mpi.Comm) error { return mpi.Allreduce(gone, d, buf, buf, mpi.Sum[byte]()) },
		"Dup":         func(d *mpi.Comm) error { _, err := d.Dup(gone); return err },
		"Split":       func(d *mpi.Comm) error { _, err := d.Split(gone, 0, 0); return err },
		"Create":      func(d *mpi.Comm) error { _, err := d.Create(gone, d.Group()); return err },
		"CreateGroup": func(d *mpi.Comm) error { _, err := d.CreateGroup(gone, d.Group(), 0); return err },
	} {
		calls[what] = func() error {
			self, err := s.Group(ctx, "mpi://SELF")
			if err != nil {
				return err
			}
			d, err := mpi.CommFromGroup(ctx, self, what)
			if err != nil {
				return err
			}
			return errors.Join(call(d), d.Close())
		}
	}
	var errs []error
	for what, call := range calls {
		if err := call(); !errors.Is(err, mpi.ErrCanceled) || !errors.Is(err, cause) {
			errs = append(errs, fmt.Errorf("%s: %v", what, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	// Matched messages are still received, and completed requests are taken.
	m, _, err := c.Mprobe(ctx, 1, 1)
	if err != nil {
		return err
	}
	if st, err := m.Recv(gone, buf); err != nil || string(buf[:st.Bytes]) != "waits" {
		return fmt.Errorf("a message that was claimed: %q, %w", buf[:st.Bytes], err)
	}
	q, err := c.Isend([]byte("sent"), 1, 3)
	if err != nil {
		return err
	}
	_, err = q.Wait(gone)
	return err
}
