package bench

import (
	"errors"

	"github.com/ferrympi/ferry/mpi"
)

// buffer returns a buffer whose pages exist, for one row. Pages that were never
// written all show the same page of zeros, which stays in the cache: a sender
// would seem to read faster than it does.
func (r *rank) buffer(size int) ([]byte, error) {
	var b []byte
	if r.o.allocMem {
		m, err := mpi.AllocMem(r.session, size)
		if err != nil {
			return nil, err
		}
		r.memories = append(r.memories, m)
		b = mpi.View[byte](m)
	} else {
		b = make([]byte, size)
	}
	for i := range b {
		b[i] = 'a'
	}
	return b, nil
}

// buffers returns one to send from and one to receive into.
func (r *rank) buffers(size int) (send, recv []byte, err error) {
	if send, err = r.buffer(size); err == nil {
		recv, err = r.buffer(size)
	}
	return send, recv, err
}

// freeBuffers ends a row.
func (r *rank) freeBuffers() error {
	var err error
	for _, m := range r.memories {
		err = errors.Join(err, m.Close())
	}
	r.memories = nil
	return err
}
