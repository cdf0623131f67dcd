package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/components"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/mtltest"
	"github.com/ferrympi/ferry/pml/cm"
)

// withNetwork returns the standard components, PML cm, and an MTL in memory if there
// is to be one.
func withNetwork(network bool) *framework.Registry {
	if network {
		return withMTL(mtltest.NewMemory(mtltest.Options{}).Component())
	}
	reg := withMTL()
	reg.NotBuilt(framework.MTL, "ofi", "libfabric.so.1 was not found", "install it")
	return reg
}

func withMTL(mtls ...mtl.Component) *framework.Registry {
	reg := without(components.Standard(), func(kind framework.Kind, _ string) bool { return kind == framework.MTL })
	for _, c := range mtls {
		reg.Register(c)
	}
	return reg
}

// without returns a registry of the components of another that are not dropped. Beside cm
// ob1 serves processes of a node, as in components.yaml.
func without(from *framework.Registry, drop func(kind framework.Kind, name string) bool) *framework.Registry {
	reg := framework.NewRegistry()
	for _, kind := range from.Kinds() {
		for _, c := range from.Components(kind) {
			if name := c.Info().Name; !drop(kind, name) && name != "cm" {
				reg.Register(c)
			}
		}
	}
	reg.Register(cm.Component())
	reg.SetNode(framework.PML, "cm", "ob1")
	return reg
}

func TestMTL_Messages_PassKit(t *testing.T) {
	for _, pmls := range []string{"cm", "cm,ob1", "ob1,cm"} {
		for _, shared := range []string{"true", "false"} {
			t.Run(pmls+" shared memory "+shared, func(t *testing.T) {
				noLeak(t)
				s, c := singleton(t, mpi.WithRegistry(withNetwork(true)), mpi.WithParam("pml", pmls), mpi.WithParam("pml.cm.shared_memory", shared))
				d, err := c.Dup(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for i, c := range []*mpi.Comm{c, d} {
					got := make([]byte, 9)
					st, err := c.Sendrecv(t.Context(), []byte("one to me"), 0, i, got, mpi.AnySource, mpi.AnyTag)
					if err != nil || string(got) != "one to me" || st.Source != 0 || st.Tag != i {
						t.Errorf("%q %+v %v", got, st, err)
					}
					if err := mpi.Barrier(t.Context(), c); err != nil {
						t.Error(err)
					}
				}
				tr, err := c.Transport(0)
				if err != nil {
					t.Fatal(err)
				}
				if want := map[bool]string{true: "cm", false: "ob1"}[strings.HasPrefix(pmls, "cm")]; tr.PML != want {
					t.Errorf("%+v, want pml %s", tr, want)
				}
				if n := len(s.Stats().Peers); n > 2 {
					t.Errorf("%d peers in the statistics of one process", n)
				}
				if err := errors.Join(d.Close(), c.Close(), s.Close()); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// If cm was requested, the error names the missing component. Otherwise another PML is used, with the reason in the verdict.
func TestOpenSession_CMWithoutMTL_ReturnsErrConfig(t *testing.T) {
	noLeak(t)
	_, err := mpi.OpenSession(t.Context(), mpi.WithRegistry(withNetwork(false)), mpi.WithParam("pml", "cm"))
	if !errors.Is(err, mpi.ErrConfig) || !strings.Contains(fmt.Sprint(err), "ofi is not built: libfabric.so.1 was not found (install it)") {
		t.Errorf("asked for: %v", err)
	}
	s, c := singleton(t, mpi.WithRegistry(withNetwork(false)))
	if _, err := c.Sendrecv(t.Context(), []byte{1}, 0, 0, make([]byte, 1), 0, 0); err != nil {
		t.Error(err)
	}
	x, err := s.Explain(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := x.String(); !strings.Contains(got, "pml cm: failed: not supported: no mtl component is usable") {
		t.Errorf("%s", got)
	}
}

// A transport that serves only the process itself is not a useful reason.
func TestSend_NoTransport_NamesMissingOnes(t *testing.T) {
	ranks(t, 2, inWorld(func(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
		err := c.Send(ctx, nil, 1-c.Rank(), 0)
		return must(errors.Is(err, mpi.ErrTransport) && strings.Contains(err.Error(),
			"no transport reaches the process: shm: unavailable: /nonexistent is not a directory (set btl.shm.dir to a directory in memory)"), "%v", err)
	}), "btl=^tcp", "btl.shm.dir=/nonexistent")
}

// TestSend_NodeWithoutTransport_ErrorNamesParameterOfNetwork requires the remedy where a network could carry the
// messages between processes of the node, and only there.
func TestSend_NodeWithoutTransport_ErrorNamesParameterOfNetwork(t *testing.T) {
	const remedy = "pml.cm.shared_memory=off leaves the processes of this node to the network"
	for selected, want := range map[string]bool{"cm": true, "ob1": false} {
		t.Run(selected, func(t *testing.T) {
			t.Parallel()
			network := mtltest.NewMemory(mtltest.Options{})
			mpitest.Job{
				Size: 2, Params: map[string]string{"pml": selected, "btl": "self"},
				Options: func(int) []mpi.SessionOption {
					return []mpi.SessionOption{mpi.WithRegistry(withMTL(network.Component()))}
				},
			}.RunSessions(t, inWorld(func(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
				err := c.Send(ctx, nil, 1-c.Rank(), 0)
				return must(errors.Is(err, mpi.ErrTransport) && strings.Contains(err.Error(), remedy) == want, "%v", err)
			}))
		})
	}
}

// A network that matches few bits has few communicators. The error has the limit and a remedy.
func TestComm_NetworkIDsUsedUp_NamesLimit(t *testing.T) {
	noLeak(t)
	narrow := mtltest.NewMemory(mtltest.Options{CIDBits: 8}).Component()
	s, c := singleton(t, mpi.WithRegistry(withMTL(narrow)), mpi.WithParam("pml", "cm"))
	all := []*mpi.Comm{c}
	var err error
	for err == nil {
		var d *mpi.Comm
		if d, err = c.Dup(t.Context()); err == nil {
			all = append(all, d)
		}
	}
	if len(all) != 64 || !errors.Is(err, mpi.ErrUnsupported) {
		t.Errorf("%d communicators, then %v", len(all), err)
	}
	for _, part := range []string{"64 open", "mtl memory has 8 bits for a communicator (memory 8/18/24), of which 6 make the index", "close communicators", "layout"} {
		if !strings.Contains(fmt.Sprint(err), part) {
			t.Errorf("%v: no %q", err, part)
		}
	}
	if err := all[1].Close(); err != nil {
		t.Fatal(err)
	}
	if all[1], err = all[2].Dup(t.Context()); err != nil { // a creation that has failed breaks the collectives of c
		t.Fatalf("after one was closed: %v", err)
	}
	for _, c := range all {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
