//go:build !cgo

package pmixc

import (
	"context"
	"fmt"
	"os"
	"time"
)

// Library is the loaded libpmix, which does not exist without cgo.
type Library struct{}

// Built returns the reason why this program cannot load libpmix.
func Built() error { return fmt.Errorf("%w: it was compiled without cgo", ErrNotBuilt) }

// Load returns the error of Built.
func Load(string) (*Library, error) { return nil, Built() }

// There is no Library, so these methods are never called.

func (*Library) VersionText() string                          { return "" }
func (*Library) Version() (Version, bool)                     { return Version{}, false }
func (*Library) StatusText(Status) string                     { return "" }
func (*Library) Init(context.Context) (Proc, error)           { return Proc{}, Built() }
func (*Library) Initialized() bool                            { return false }
func (*Library) Finalize(context.Context) error               { return Built() }
func (*Library) Abort(context.Context, int, string) error     { return Built() }
func (*Library) Put(context.Context, string, []byte) error    { return Built() }
func (*Library) Commit(context.Context) error                 { return Built() }
func (*Library) Psets(context.Context) (string, error)        { return "", Built() }
func (*Library) Pset(context.Context, string) ([]Proc, error) { return nil, Built() }
func (*Library) Watch(context.Context, Status) error          { return Built() }
func (*Library) NextEvent() (Event, bool)                     { return Event{}, false }
func (*Library) DroppedEvents() uint64                        { return 0 }

func (*Library) Nodes(context.Context, string) (string, error)         { return "", Built() }
func (*Library) Peers(context.Context, string, string) ([]Proc, error) { return nil, Built() }

func (*Library) EventFile() (*os.File, error) { return nil, Built() }

func (*Library) Get(context.Context, Proc, string, time.Duration) (Value, error) {
	return Value{}, Built()
}

func (*Library) Fence(context.Context, string, []uint32, time.Duration) error { return Built() }

func (*Library) Construct(context.Context, string, string, []uint32, time.Duration) (uint64, error) {
	return 0, Built()
}

func (*Library) Spawn(context.Context, App) (string, error) { return "", Built() }
