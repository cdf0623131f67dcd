package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
)

func TestPsetOp_SetsOfOthers_HaveTheirMembers(t *testing.T) {
	ranks(t, 4, inWorld(func(ctx context.Context, s *mpi.Session, world *mpi.Comm) error {
		halves := make([]byte, 256)
		if world.Rank() == 0 {
			names, err := s.PsetOp(ctx, mpi.PsetSplit, []string{"mpi://WORLD"}, mpi.PsetArgs{Sizes: []int{1, 3}})
			if err != nil || len(names) != 2 {
				return fmt.Errorf("split: %v, %v", names, err)
			}
			union, err := s.PsetOp(ctx, mpi.PsetUnion, names, mpi.PsetArgs{Name: "org.example.all"})
			if err != nil || !slices.Equal(union, []string{"org.example.all"}) {
				return fmt.Errorf("union: %v, %v", union, err)
			}
			copy(halves, names[1])
			if err := s.PublishData(ctx, "org.example.all", "answer", []byte("42")); err != nil {
				return err
			}
		}
		if err := mpi.Bcast(ctx, world, halves, 0); err != nil {
			return err
		}
		three := string(halves[:slices.Index(halves, 0)])
		info, err := s.PsetInfo(ctx, three)
		if err != nil || info.Size != 3 || !info.Dynamic || info.Included != (world.Rank() > 0) {
			return fmt.Errorf("%q: %+v, %v", three, info, err)
		}
		value, err := s.LookupDataAsync("ORG.example.all", "answer").Wait(ctx)
		if err != nil || string(value) != "42" {
			return fmt.Errorf("lookup: %q, %v", value, err)
		}
		if _, ok, err := s.ResourceChange(ctx, "mpi://WORLD"); ok || err != nil {
			return fmt.Errorf("change: %v, %v", ok, err)
		}
		_, err = s.PsetOp(ctx, mpi.PsetUnion, []string{"mpi://WORLD", "org.example.al"}, mpi.PsetArgs{})
		if err := wants("union with an unknown set", err, mpi.ErrPset); err != nil {
			return err
		}
		if err := mpi.Barrier(ctx, world); err != nil {
			return err
		}
		if world.Rank() == 0 {
			if err := s.DeletePset(ctx, "org.example.all"); err != nil {
				return err
			}
			_, err := s.Group(ctx, "org.example.all")
			return wants("group of a deleted set", err, mpi.ErrPset)
		}
		return nil
	}))
}

func TestPublishData_OverTheLimits_ErrUnsupported(t *testing.T) {
	ranks(t, 1, inWorld(func(ctx context.Context, s *mpi.Session, _ *mpi.Comm) error {
		const maxKey, maxValue = 1 << 10, 1 << 20
		key := strings.Repeat("k", maxKey)
		return errors.Join(
			s.PublishData(ctx, "mpi://WORLD", key, make([]byte, maxValue)),
			wants("a long key", s.PublishData(ctx, "mpi://WORLD", key+"k", nil), mpi.ErrUnsupported),
			wants("a long value", s.PublishData(ctx, "mpi://WORLD", key, make([]byte, maxValue+1)), mpi.ErrUnsupported))
	}))
}

func TestFuture_SessionCloses_EndsWithErrClosed(t *testing.T) {
	ranks(t, 2, func(ctx context.Context) error {
		s, err := mpitest.Open(ctx)
		if err != nil {
			return err
		}
		change := s.ResourceChangeAsync("mpi://WORLD")
		key := s.LookupDataAsync("mpi://WORLD", "never")
		ended, cancel := context.WithCancelCause(ctx)
		cancel(errMine)
		if _, err := change.Wait(ended); !errors.Is(err, errMine) {
			return fmt.Errorf("a wait that ended: %v", err)
		}
		if err := s.Close(); err != nil {
			return err
		}
		_, changeErr := change.Wait(ctx)
		_, keyErr := key.Wait(ctx)
		_, late := s.PsetOpAsync(mpi.PsetUnion, []string{"mpi://WORLD"}, mpi.PsetArgs{}).Wait(ctx)
		return errors.Join(wants("change", changeErr, mpi.ErrClosed), wants("key", keyErr, mpi.ErrClosed), wants("a call after Close", late, mpi.ErrClosed))
	})
}
