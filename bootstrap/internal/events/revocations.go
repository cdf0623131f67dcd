package events

const (
	// mostRevocations and mostRevokedBytes limit the kept revocations. A member that has missed one is in
	// no newer communicator with the others, because Shrink includes all live members. So it has
	// received the revocation, or is reported dead, long before the others revoke that many more.
	mostRevocations  = 1 << 16
	mostRevokedBytes = 64 << 20
)

// Revocations are the revocations of a job, each once. The oldest are forgotten only after mostRevocations
// newer ones, or mostRevokedBytes. The zero value is empty.
type Revocations struct {
	// Two generations; each holds up to mostRevocations.
	known, knownBefore map[[16]byte]struct{}
	// The oldest first.
	kept []*Revocation
	// Sum of the sizes in kept.
	bytes int
}

// A Revocation is one that was distributed.
type Revocation struct {
	// The encoded event.
	Frame []byte
	// Members that had no connection, for a server, which removes them later.
	Absent []uint32
	// Bytes of both at first.
	size int
}

// IsKnown reports whether comm has been revoked.
func (r *Revocations) IsKnown(comm [16]byte) bool {
	_, now := r.known[comm]
	_, before := r.knownBefore[comm]
	return now || before
}

// Add keeps the revocation of a communicator that is not known to be revoked.
func (r *Revocations) Add(comm [16]byte, v *Revocation) {
	if len(r.known) >= mostRevocations {
		r.knownBefore, r.known = r.known, nil
	}
	if r.known == nil {
		r.known = map[[16]byte]struct{}{}
	}
	r.known[comm] = struct{}{}
	r.kept = append(r.kept, v)
	v.size = len(v.Frame) + 4*len(v.Absent)
	r.bytes += v.size
	for len(r.kept) > mostRevocations || r.bytes > mostRevokedBytes && len(r.kept) > 1 {
		r.bytes -= r.kept[0].size
		r.kept[0] = nil
		r.kept = r.kept[1:]
	}
}

// Kept returns the kept revocations, the oldest first.
func (r *Revocations) Kept() []*Revocation { return r.kept }
