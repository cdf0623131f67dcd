package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/local"
	"github.com/ferrympi/ferry/bootstrap/local/localtest"
	"github.com/ferrympi/ferry/mpi"
)

// mpix://SHARED is an error, because its members are unknown. SplitShared finds the node by the cards, and messages stay on it.
func TestSplitShared_LauncherLacksNodeMap_UsesCards(t *testing.T) {
	localtest.Run(t, 3, "nowhere")
}

// unplaced is a client that does not know who is on the node.
type unplaced struct{ bootstrap.Client }

func (c unplaced) Identity() bootstrap.Identity {
	id := c.Client.Identity()
	id.LocalRanks, id.LocalSize, id.LocalRank, id.Nodes = nil, 0, 0, nil
	return id
}

func (c unplaced) Unwrap() any { return c.Client }

func nowhere(ctx context.Context) error {
	client, err := local.Dial(ctx, os.Environ(), bootstrap.Env{})
	if err != nil {
		return err
	}
	s, err := mpi.OpenSession(ctx, mpi.WithBootstrap(unplaced{client}))
	if err != nil {
		return err
	}
	names, err := s.Psets(ctx)
	if err != nil || slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, "mpix://") }) || len(names) < 2 {
		return fmt.Errorf("process sets %q, %w", names, err)
	}
	_, err = s.Group(ctx, "mpix://shared")
	_, infoErr := s.PsetInfo(ctx, "mpix://SHARED")
	_, rootsErr := s.Group(ctx, "mpix://ROOTS")
	if err = errors.Join(wants("group", err, mpi.ErrPset), wants("info", infoErr, mpi.ErrPset), wants("roots", rootsErr, mpi.ErrPset)); err != nil {
		return err
	}
	for _, err := range []error{infoErr, rootsErr} {
		if !strings.Contains(err.Error(), "SplitShared") {
			return fmt.Errorf("no remedy: %w", err)
		}
	}
	world, err := s.Group(ctx, "mpi://WORLD")
	if err != nil {
		return err
	}
	c, err := mpi.CommFromGroup(ctx, world, "nowhere")
	if err != nil {
		return err
	}
	node, err := c.SplitShared(ctx, 0)
	if err != nil {
		return err
	}
	if node.Size() != 3 || node.Rank() != c.Rank() {
		return fmt.Errorf("rank %d of %d on the node", node.Rank(), node.Size())
	}
	if err := mpi.Barrier(ctx, node); err != nil {
		return err
	}
	if by, err := c.Transport((c.Rank() + 1) % 3); err != nil || by.Component != "shm" {
		return fmt.Errorf("messages go by %+v, %w", by, err)
	}
	return errors.Join(node.Close(), c.Close(), s.Close(), client.Close())
}
