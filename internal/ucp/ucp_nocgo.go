//go:build !cgo

package ucp

import "fmt"

// Library cannot exist without cgo.
type Library struct{}

// Built returns the reason why this program cannot load UCX.
func Built() error { return fmt.Errorf("%w: it was compiled without cgo", ErrNotBuilt) }

// Setenv has no effect.
func Setenv(string, string) {}

// Load returns the error of Built.
func Load(string) (*Library, error) { return nil, Built() }

// The methods below are never called, because there is no Library.

func (*Library) Version() Version                      { return Version{} }
func (*Library) Text(Status) string                    { return "" }
func (*Library) Open([]Setting, bool) (*Worker, error) { return nil, Built() }

// Worker sends and receives messages.
type Worker struct{}

// Endpoint is a connection to a peer.
type Endpoint struct{}

func (Endpoint) IsValid() bool { return false }

func (*Worker) Resources() ([]Resource, error)                 { return nil, Built() }
func (*Worker) Start() error                                   { return Built() }
func (*Worker) Close()                                         {}
func (*Worker) BypassCgo()                                     {}
func (*Worker) Address() ([]byte, error)                       { return nil, Built() }
func (*Worker) AddSlots() (int, error)                         { return 0, Built() }
func (*Worker) FD() int                                        { return -1 }
func (*Worker) Arm() bool                                      { return true }
func (*Worker) Connect([]byte, uint32, bool) (Endpoint, error) { return Endpoint{}, Built() }
func (*Worker) Disconnect(uint32, Endpoint) (bool, Status)     { return false, NoDevice }
func (*Worker) Flush(uint32, Endpoint) (bool, Status)          { return false, NoDevice }
func (*Worker) Send(uint32, Endpoint, []byte, uint64, bool) (bool, Status) {
	return false, NoDevice
}
func (*Worker) SendNow(Endpoint, []byte, uint64) bool          { return false }
func (*Worker) Recv(uint32, []byte, uint64, uint64, BufferUse) {}
func (*Worker) RecvAndPoll(uint32, []byte, uint64, uint64, BufferUse, []Event, int) int {
	return 0
}
func (*Worker) Probe(uint32, uint64, uint64, bool) (Event, bool) { return Event{}, false }
func (*Worker) RecvClaimed(uint32, []byte, BufferUse)            {}
func (*Worker) Cancel(uint32)                                    {}
func (*Worker) Abandon(uint32) bool                              { return true }
func (*Worker) SaveMessages(int)                                 {}
func (*Worker) SavedMessage(uint32, int) []byte                  { return nil }
func (*Worker) InvalidateRegistrations([]byte)                   {}
func (*Worker) Poll([]Event, bool) int                           { return 0 }
func (*Worker) Describe(Status) string                           { return "" }
