package mtltest

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"weak"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/progress"
)

type tells struct{ done int }

func (o *tells) Done(*mtl.Op) { o.done++ }

type deaf struct{}

func (deaf) Control([]byte)                            {}
func (deaf) Endpoint(uint32, int) (mtl.Endpoint, bool) { return 0, false }

// pair returns two modules of a network.
func pair(t *testing.T, f *Memory) (m [2]mtl.Module) {
	for i := range m {
		p := framework.Proc{Namespace: "job", Rank: uint32(i)}
		var err error
		m[i], err = f.Component().Open(context.Background(), mtl.Env{
			Env: progress.Env{Identity: bootstrap.Identity{Proc: p, Size: 2}, Worlds: framework.NewWorlds("job")}, Upcall: deaf{},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// Otherwise a network that many worlds use in sequence would retain all of them with their engines.
func TestMemory_ModuleCloses_IsReleased(t *testing.T) {
	f := NewMemory(Options{})
	m := pair(t, f)
	other := framework.Peer{Incarnation: framework.Incarnation{ID: framework.MakeProcID(0, 1)}, Blob: m[1].Blob()}
	send := func() *mtl.Op {
		op := &mtl.Op{Owner: new(tells)}
		to, err := m[0].Connect(other)
		if err == nil {
			_, err = m[0].Send(op, to, mtl.Envelope{CID: 3}, []byte("text"), mtl.Standard)
		}
		if err != nil {
			t.Fatal(err)
		}
		return op
	}
	send()
	m[1].Poll()
	if err := m[1].Recv(&mtl.Op{Owner: new(tells)}, mtl.NoEndpoint, mtl.Envelope{CID: 3, Source: mtl.AnySource}, nil); err != nil {
		t.Fatal(err)
	}
	send() // It is never received.
	m[1].Close()
	m[0].Forget(1, framework.ErrClosed)
	// Its card leads to a closed module.
	op := send()
	if m[0].Poll(); !errors.Is(op.Err, framework.ErrClosed) {
		t.Error(op.Err)
	}
	m[0].Close()
	var kept [2]weak.Pointer[memoryModule]
	for i := range m {
		kept[i] = weak.Make(m[i].(*memoryModule))
		m[i] = nil
	}
	runtime.GC()
	for i := range kept {
		if kept[i].Value() != nil {
			t.Errorf("module %d has closed, and is still held", i)
		}
	}
	runtime.KeepAlive(f)
}

// With Faults.Polls a message overtakes the cancel of its receive, which completes with the message.
func TestMemory_LateCancel_ReceivesMessage(t *testing.T) {
	m := pair(t, NewMemory(Options{Faults: Faults{Polls: 3}}))
	defer m[0].Close()
	defer m[1].Close()
	var owner tells
	op := mtl.Op{Owner: &owner}
	buf := make([]byte, 8)
	if err := m[1].Recv(&op, 0, mtl.Envelope{CID: 3, Source: mtl.AnySource, Tag: mtl.AnyTag}, buf); err != nil {
		t.Fatal(err)
	}
	to, err := m[0].Connect(framework.Peer{Incarnation: framework.Incarnation{ID: framework.MakeProcID(0, 1)}, Blob: m[1].Blob()})
	if err != nil {
		t.Fatal(err)
	}
	if done, err := m[0].Send(nil, to, mtl.Envelope{CID: 3, Source: 0, Tag: 5}, []byte("late"), mtl.Standard); !done || err != nil {
		t.Fatal(done, err)
	}
	m[1].Poll()
	m[1].Cancel(&op)
	for owner.done == 0 {
		m[1].Poll()
	}
	if op.Canceled || op.Source != 0 || op.Tag != 5 || string(buf[:op.Bytes]) != "late" {
		t.Errorf("%+v", op.Result)
	}
}
