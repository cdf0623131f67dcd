package mpi

// Failed returns the ranks of the failed members, in the order in which this process learned of the failures
// (MPIX_Comm_get_failed). It is local. Each result begins with all earlier results. No ErrProcFailed names a rank that a
// later call lacks. A process that fails takes all of its ranks along. A failure is a death that the bootstrap has
// reported. A member that is disconnected, or has closed its session, has not failed.
func (c *Comm) Failed() []int {
	var ranks []int
	for _, d := range c.session.engine.Dead() {
		ranks = append(ranks, c.ranksOfProcess(d.Life)...)
	}
	return ranks
}
