package mpi_test

import (
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/local"
	"github.com/ferrympi/ferry/mpi"
)

// hasty is the client of a singleton whose launcher asks for a dump at once.
type hasty struct{ bootstrap.Client }

func (hasty) Begin(uint64) {}

func (hasty) OnEvent(f func(bootstrap.Event)) {
	if f != nil {
		f(bootstrap.Event{Kind: bootstrap.Dump})
		time.Sleep(10 * time.Millisecond) // it happens before the session is open
	}
}

func TestDumpIsAskedForWhileASessionOpens(t *testing.T) {
	client, err := local.Component().Open(t.Context(), bootstrap.Env{Params: local.Component().Params()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	s, err := mpi.OpenSession(t.Context(), mpi.WithBootstrap(hasty{client}))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
