package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/ferrympi/ferry/bootstrap/local/localtest"
	"github.com/ferrympi/ferry/mpi"
)

func TestProcess_Fails_WaitsForItEnd(t *testing.T) {
	t.Parallel()
	r := localtest.RunJob(t, localtest.Job{Size: 3, Program: "dead", MayFail: true})
	for rank := range 2 {
		if r.Exit[rank] != nil {
			t.Errorf("rank %d: %v\n%s", rank, r.Exit[rank], r.Output[rank])
		}
	}
	if r.Exit[2] == nil {
		t.Error("rank 2 was to fail")
	}
}

func dead(ctx context.Context) error {
	s, err := mpi.OpenSession(ctx)
	if err != nil {
		return err
	}
	world, err := s.Group(ctx, "mpi://WORLD")
	if err != nil {
		return err
	}
	c, err := mpi.CommFromGroup(ctx, world, "world")
	if err != nil {
		return err
	}
	if c.Rank() == 2 {
		return errors.New("rank 2 fails as it should")
	}
	_, err = c.Recv(ctx, nil, 2, 0)
	if err := wants("receive from a dead process", err, mpi.ErrProcFailed); err != nil {
		return err
	}
	if err := startWithTheDead(ctx, c, 2); err != nil {
		return err
	}
	_, err = mpi.CommFromGroup(ctx, world, "again")
	if err := wants("creation with a dead process", err, mpi.ErrProcFailed); err != nil {
		return err
	}
	// The others go on.
	peer := 1 - c.Rank()
	if _, err := c.Sendrecv(ctx, []byte{1}, peer, 0, make([]byte, 1), peer, 0); err != nil {
		return err
	}
	return errors.Join(c.Close(), s.Close())
}

// startWithTheDead starts nonblocking operations with a failed process. Their waits return the failure.
func startWithTheDead(ctx context.Context, c *mpi.Comm, dead int) error {
	b := make([]byte, 1)
	for what, start := range map[string]func() (mpi.Request, error){
		"Isend":                   func() (mpi.Request, error) { return c.Isend(b, dead, 0) },
		"Issend":                  func() (mpi.Request, error) { return c.Issend(b, dead, 0) },
		"Irecv":                   func() (mpi.Request, error) { return c.Irecv(b, dead, 0) },
		"Irsend":                  func() (mpi.Request, error) { return c.Irsend(b, dead, 0) },
		"Ibsend":                  func() (mpi.Request, error) { return c.Ibsend(b, dead, 0) },
		"Isendrecv of the dead":   func() (mpi.Request, error) { return c.Isendrecv(b, dead, 0, b, dead, 0) },
		"Isendrecv to the dead":   func() (mpi.Request, error) { return c.Isendrecv(b, dead, 0, b, c.Rank(), 77) },
		"Isendrecv from the dead": func() (mpi.Request, error) { return c.IsendrecvReplace(make([]byte, 1), mpi.ProcNull, 0, dead, 0) },
	} {
		r, err := start()
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		_, err = r.Wait(ctx)
		if err := wants(what, err, mpi.ErrProcFailed); err != nil {
			return err
		}
	}
	for what, init := range map[string]func([]byte, int, int) (*mpi.Persistent, error){
		"SendInit": c.SendInit, "SsendInit": c.SsendInit, "RecvInit": c.RecvInit, "BsendInit": c.BsendInit, "RsendInit": c.RsendInit,
	} {
		p, err := init(b, dead, 0)
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		for range 2 { // it is inactive after the first
			if err := p.Start(); err != nil {
				return fmt.Errorf("%s: Start: %w", what, err)
			}
			_, err = p.Wait(ctx)
			if err := wants(what, err, mpi.ErrProcFailed); err != nil {
				return err
			}
		}
		if err := p.Free(); err != nil {
			return err
		}
	}
	return wants("Bsend", c.Bsend(ctx, b, dead, 0), mpi.ErrProcFailed)
}

// A segment is a file that its user may truncate.
func TestInbox_Truncated_OthersSurvive(t *testing.T) {
	t.Parallel()
	r := localtest.RunJob(t, localtest.Job{Size: 3, Program: "cut", MayFail: true, Env: []string{"FERRY_BTL_SHM_DIR=" + t.TempDir()}})
	for rank := range 2 {
		if r.Exit[rank] != nil {
			t.Errorf("rank %d: %v\n%s", rank, r.Exit[rank], r.Output[rank])
		}
	}
	if r.Exit[2] == nil {
		t.Error("rank 2 has no inbox any more, and lives")
	}
}

func cut(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
	b := make([]byte, 1)
	for range 3 { // paths both ways between all
		for peer := range c.Size() {
			if _, err := c.Sendrecv(ctx, b, peer, 0, b, peer, 0); err != nil {
				return err
			}
		}
	}
	switch c.Rank() {
	case 1:
		if err := c.Send(ctx, b, 0, 3); err != nil {
			return err
		}
	case 0:
		if _, err := c.Recv(ctx, b, 1, 3); err != nil { // it is done with rank 2
			return err
		}
		inbox, err := filepath.Glob(filepath.Join(os.Getenv("FERRY_BTL_SHM_DIR"), "ferry-*-2-*"))
		if err != nil || len(inbox) != 1 {
			return fmt.Errorf("the inbox of rank 2: %q, %w", inbox, err)
		}
		if err := os.Truncate(inbox[0], 0); err != nil {
			return err
		}
	}
	_, err := c.Recv(ctx, b, 2, 1)
	if err := wants("receive from the dead", err, mpi.ErrProcFailed); err != nil {
		return err
	}
	_, err = c.Sendrecv(ctx, b, 1-c.Rank(), 2, b, 1-c.Rank(), 2)
	return err
}
