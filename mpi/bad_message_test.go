package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
)

func TestCreateGroup_InvalidAnnouncement_ErrorNamesMemberAndCall(t *testing.T) {
	t.Parallel()
	mpitest.Run(t, 2, func(ctx context.Context, c *mpi.Comm) error {
		const tag = 1
		if c.Rank() == 0 {
			return mpi.SendControl(ctx, c, []byte("bad"), 1, tag)
		}
		_, err := c.CreateGroup(ctx, c.Group(), tag)
		sender := c.Group().Members()[0]
		want := fmt.Sprintf("mpi: receive with %v: create group: invalid announcement of 3 bytes", sender)
		if !errors.Is(err, mpi.ErrTransport) || !strings.Contains(err.Error(), want) {
			return fmt.Errorf("error %w, want one that contains %q", err, want)
		}
		return nil
	})
}
