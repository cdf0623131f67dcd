package pml

// RankSet is a set of ranks of a communicator, with one bit for each. It is compared by identity, and immutable once it is
// shared. The nil set is empty.
type RankSet struct {
	n    int
	bits []uint64
	// Set if the ranks without a bit are the members.
	isComplement bool
}

// NewRankSet returns the empty set of a communicator with n members.
func NewRankSet(n int) *RankSet { return &RankSet{n: n, bits: make([]uint64, (n+63)/64)} }

// Len returns the number of members of the communicator.
func (s *RankSet) Len() int { return s.n }

// Has reports whether a rank, which is in range, is in the set.
func (s *RankSet) Has(rank int) bool {
	return s != nil && (s.bits[rank>>6]>>(rank&63)&1 != 0) != s.isComplement
}

// Add adds a rank, which is in range. The set must not be a complement, nor have one.
func (s *RankSet) Add(rank int) { s.bits[rank>>6] |= 1 << (rank & 63) }

// Complement returns the set of all other ranks. Both sets share memory.
func (s *RankSet) Complement() *RankSet {
	return &RankSet{n: s.n, bits: s.bits, isComplement: !s.isComplement}
}
