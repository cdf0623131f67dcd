package ob1

import (
	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/pml/ob1/selector"
)

// Protocol get. Where the transport can read the peer's memory (btl.RMA), the RTS
// describes the sender's buffer, and the receiver copies from it. A CTS of 0 bytes completes
// the send. If a copy fails, the receiver accepts the message by the pipeline.

// getReceive is the receiver's side. The sender waits for the CTS.
type getReceive struct{ reader btl.RMA }

// start implements transfer.
func (g *getReceive) start(r *request) {
	r.beginCopy()
	g.reader = r.p.proc.inTransport.reader
	r.state = stateTransferring
	r.m.addCopy(r)
}

// progress implements stepper.
func (g *getReceive) progress(r *request) (steps int, more bool) {
	x := r.rndv
	k, err := g.reader.Read(r.p.proc.Incarnation, x.remote, x.bytesMoved, r.buf.Bytes[x.bytesMoved:x.bytesWanted])
	if err != nil {
		r.fallBackToPipeline()
		return 1, false
	}
	if x.bytesMoved += int64(k); x.bytesMoved < x.bytesWanted {
		return 1, true
	}
	r.completeCopy()
	return 1, false
}

// abort implements transfer.
func (g *getReceive) abort(*request, error) (ended bool) { return true }

// describe implements transfer.
func (g *getReceive) describe(r *request) string { return r.describeBytes(selector.Get) }

// canGet reports whether a matched message can be copied out of the sender's memory, where the
// transport has no choice of protocols.
func (r *request) canGet(remote *btl.Remote) bool {
	if *remote == (btl.Remote{}) || r.buf.Layout() != nil || r.rndv.bytesWanted == 0 {
		return false
	}
	// Only the transport of the incoming path can interpret the description.
	t := r.p.proc.inTransport
	return t != nil && t.reader != nil && r.p.proc.requirePath() == nil &&
		t.reader.CanRead(r.p.proc.Incarnation, *remote, r.rndv.bytesWanted) == nil
}
