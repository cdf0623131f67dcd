package mpi

import (
	"fmt"
	"sync"

	"github.com/ferrympi/ferry/pml"
)

// failures is the number of failures that the rank has acknowledged. The mutex is held while receives are suspended, so
// that the reasons follow one another in the order of the failures and acknowledgments. It is acquired before the engine's lock.
type failures struct {
	sync.Mutex
	ackedCount int
}

// Failed returns the ranks of the failed members, in the order of the reports to this process
// (MPIX_Comm_get_failed). It is local. Each result begins with all earlier results. A rank in an ErrProcFailed is in
// later results. A process that fails takes all of its ranks along. A failure is a death that the bootstrap has
// reported. A member that is disconnected, or has closed its session, has not failed.
func (c *Comm) Failed() []int {
	ranks, _ := c.failed()
	return ranks
}

// failed returns the ranks of Failed, and the reason of each.
func (c *Comm) failed() (ranks []int, reasons []string) {
	for _, d := range c.session.process.Failed() {
		for _, rank := range c.ranksOfProcess(d.Incarnation) {
			ranks, reasons = append(ranks, rank), append(reasons, d.Reason)
		}
	}
	return ranks, reasons
}

// AckFailed acknowledges the first n failures that Failed returns, or all if there are fewer, and returns the number of
// failures that are acknowledged now (MPIX_Comm_ack_failed). It is local, and takes back no earlier acknowledgment.
//
// After the failure of a member, a receive from any source could wait for a message of the dead. Therefore its Wait and Test return
// ErrProcFailedPending, with the ranks as a ProcFailedError, until all failures are acknowledged. The request stays active and matchable, and a
// message that matches completes it. A blocking Recv returns the error, and its receive is withdrawn. A probe returns it unless a
// message is here. If all other members have failed and are acknowledged, the receives end with ErrProcFailed. Collectives fail as before.
func (c *Comm) AckFailed(n int) int {
	f := &c.failures
	f.Lock()
	defer f.Unlock()
	ranks, reasons := c.failed()
	f.ackedCount = max(f.ackedCount, min(n, len(ranks)))
	c.suspend(ranks, reasons)
	return f.ackedCount
}

// suspendReceives suspends the receives from any source while there are failures that are not acknowledged.
func (c *Comm) suspendReceives() {
	c.failures.Lock()
	defer c.failures.Unlock()
	c.suspend(c.failed())
}

// suspend is suspendReceives after these failures. The mutex of failures is held.
func (c *Comm) suspend(ranks []int, reasons []string) {
	if len(ranks) == 0 {
		return
	}
	var why error
	if acked := c.failures.ackedCount; acked < len(ranks) {
		why = fmt.Errorf("%w: %w", ErrProcFailedPending, pml.ProcFailed(c.spec.Members, ranks[acked:], reasons[acked]))
	}
	c.pml.Suspend(pml.PointToPoint, why)
	c.wildcards.suspend(c.rankState.engine, why)
}
