package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Start is the body of Hello.
type Start struct {
	Version uint32
	// Of this incarnation.
	Nonce                            uint64
	Rank, Size, LocalRank, LocalSize uint32
	Namespace, Node, Dir             string
}

// Offer is the body of Ready. It describes the transport.
type Offer struct {
	Version uint32
	// Bits ReachesSelf and ReachesOthers.
	Reaches      uint32
	Eager, Frame uint32 // Bytes.
	Exclusivity  int32
	Latency      uint64 // Nanoseconds.
	Name, Device string
	Blob         []byte
}

// Bits of the processes that a transport reaches.
const (
	ReachesSelf   = 1
	ReachesOthers = 2
)

// Target is the body of Connect.
type Target struct {
	Caller
	Namespace string
	// For transports that do not create it themselves.
	Greeting []byte
	Blob     []byte
}

// Bytes encodes s with its kind.
func (s Start) Bytes() []byte {
	w := writer{}
	w.u32(Hello, s.Version)
	w.u64(s.Nonce)
	w.u32(s.Rank, s.Size, s.LocalRank, s.LocalSize)
	w.text(s.Namespace, s.Node, s.Dir)
	return w.b
}

// ParseStart decodes the body of Hello. It decodes only the version if that differs.
func ParseStart(b []byte) (s Start, err error) {
	r := reader{b: b}
	if s.Version = r.u32(); s.Version != Version {
		return s, errors.Join(r.err, Differ(false, s.Version))
	}
	s.Nonce = r.u64()
	s.Rank, s.Size, s.LocalRank, s.LocalSize = r.u32(), r.u32(), r.u32(), r.u32()
	s.Namespace, s.Node, s.Dir = string(r.bytes()), string(r.bytes()), string(r.bytes())
	return s, r.end()
}

// Bytes encodes o with its kind.
func (o Offer) Bytes() []byte {
	w := writer{}
	w.u32(Ready, o.Version, o.Reaches, o.Eager, o.Frame, uint32(o.Exclusivity))
	w.u64(o.Latency)
	w.text(o.Name, o.Device, string(o.Blob))
	return w.b
}

// ParseOffer decodes the body of Ready.
func ParseOffer(b []byte) (o Offer, err error) {
	r := reader{b: b}
	if o.Version = r.u32(); o.Version != Version {
		return o, errors.Join(r.err, Differ(true, o.Version))
	}
	o.Reaches, o.Eager, o.Frame, o.Exclusivity = r.u32(), r.u32(), r.u32(), int32(r.u32())
	o.Latency = r.u64()
	o.Name, o.Device, o.Blob = string(r.bytes()), string(r.bytes()), r.bytes()
	return o, r.end()
}

// Bytes encodes t.
func (t Target) Bytes() []byte {
	w := writer{b: t.append(nil)}
	w.text(t.Namespace, string(t.Greeting), string(t.Blob))
	return w.b
}

// ParseTarget decodes the body of Connect.
func ParseTarget(b []byte) (t Target, err error) {
	if len(b) < callerSize {
		return t, fmt.Errorf("target has %d bytes, want at least %d", len(b), callerSize)
	}
	if t.Caller, err = ParseCaller(b[:callerSize]); err != nil {
		return t, err
	}
	r := reader{b: b[callerSize:]}
	t.Namespace, t.Greeting, t.Blob = string(r.bytes()), r.bytes(), r.bytes()
	return t, r.end()
}

type writer struct{ b []byte }

func (w *writer) u32(values ...uint32) {
	for _, v := range values {
		w.b = binary.LittleEndian.AppendUint32(w.b, v)
	}
}

func (w *writer) u64(v uint64) { w.b = binary.LittleEndian.AppendUint64(w.b, v) }

// text appends each value with its length as u32.
func (w *writer) text(values ...string) {
	for _, v := range values {
		w.u32(uint32(len(v)))
		w.b = append(w.b, v...)
	}
}

type reader struct {
	b   []byte
	err error
}

func (r *reader) take(n uint32) []byte {
	if uint64(n) > uint64(len(r.b)) {
		r.err, r.b = errors.New("truncated body"), nil
		return make([]byte, min(n, 8))
	}
	b := r.b[:n:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) u32() uint32 { return binary.LittleEndian.Uint32(r.take(4)) }
func (r *reader) u64() uint64 { return binary.LittleEndian.Uint64(r.take(8)) }
func (r *reader) bytes() []byte {
	return append([]byte{}, r.take(r.u32())...)
}

func (r *reader) end() error {
	if r.err == nil && len(r.b) > 0 {
		return fmt.Errorf("%d trailing bytes", len(r.b))
	}
	return r.err
}
