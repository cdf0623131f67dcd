package ob1

import "github.com/ferrympi/ferry/pml/ob1/selector"

// Protocol split. The receiver answers the RTS by a share of its buffer. It reads chunks from
// the front while the sender writes others from the end.

// splitReceive is the receiver's side. The sender's is putSend.
type splitReceive struct{ *sharedReceive }

// start implements transfer.
func (s splitReceive) start(r *request) { s.begin(r) }

// progress implements stepper. It copies a part of a chunk, or checks whether the sender has
// finished.
func (s splitReceive) progress(r *request) (steps int, more bool) {
	if r.state == stateStopping {
		return s.stop(r)
	}
	if s.chunkLeft == 0 && !s.claim(r) {
		return s.finish(r)
	}
	return s.read(r)
}

// describe implements transfer.
func (s splitReceive) describe(r *request) string { return s.describeShare(r, selector.Split) }
