//go:build !cgo

package libfabric

import "fmt"

type handle = struct{}

// Library cannot exist without cgo.
type Library struct{}

// Built returns the reason why this program cannot load libfabric.
func Built() error { return fmt.Errorf("%w: it was compiled without cgo", ErrNotBuilt) }

// Setenv has no effect.
func Setenv(string, string) {}

// Load returns the error of Built.
func Load(string) (*Library, error) { return nil, Built() }

// The methods below are never called, because there is no Library.

func (*Library) Version() Version                               { return Version{} }
func (*Library) Text(Errno) string                              { return "" }
func (*Library) Providers() ([]string, error)                   { return nil, Built() }
func (*Library) Infos(string) (*Infos, error)                   { return nil, Built() }
func (*Library) Open(*Info, bool, bool, int) (*Endpoint, error) { return nil, Built() }

// Infos is a list of offers.
type Infos struct{ List []Info }

func (*Infos) Free() {}

// Region is registered memory.
type Region struct{}

// Endpoint sends and receives messages.
type Endpoint struct{}

func (*Endpoint) Close()                                                   {}
func (*Endpoint) Name() ([]byte, error)                                    { return nil, Built() }
func (*Endpoint) AddSlots() (int, error)                                   { return 0, Built() }
func (*Endpoint) Insert([]byte) (uint64, error)                            { return 0, Built() }
func (*Endpoint) Register([]byte) (*Region, error)                         { return nil, Built() }
func (*Endpoint) Deregister(*Region) error                                 { return Built() }
func (*Endpoint) SetRegion(uint32, *Region)                                {}
func (*Endpoint) Remove(uint64)                                            {}
func (*Endpoint) FD() int                                                  { return -1 }
func (*Endpoint) TryWait() bool                                            { return true }
func (*Endpoint) TSend(uint32, []byte, uint64, uint64, uint64, Kind) Errno { return NoData }
func (*Endpoint) TRecv(uint32, []byte, uint64, uint64, uint64, Kind) Errno { return NoData }
func (*Endpoint) Peek(uint32, uint64, uint64, uint64, Kind) Errno          { return NoData }
func (*Endpoint) Send(uint32, []byte, uint64, Kind) Errno                  { return NoData }
func (*Endpoint) Recv(uint32, []byte) Errno                                { return NoData }
func (*Endpoint) Cancel(uint32)                                            {}
func (*Endpoint) Poll([]Event) (int, Errno)                                { return 0, NoData }
func (*Endpoint) Describe(*Event) string                                   { return "" }
