package assembly

import (
	"context"

	"github.com/ferrympi/ferry/assembly/wireup"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

// AcceptTable prepares this process for the communicator of a table without messages, as a creation in levels does with a table that it has
// received. The model of large jobs in test/scale measures its memory. t has the nonce of this process, and the ids of a process without
// communicators. No other process writes to its memory.
func (a *Assembly) AcceptTable(t *wireup.Table, group []framework.Proc, rank int) (m PML, spec pml.CommSpec, err error) {
	p := &levelPort{Assembly: a, ctx: context.Background(), group: group, rank: rank}
	p.candidateIDs = a.pmls[0].CIDs().WithholdCandidates(cid.PolicyAgree, len(group), levelsRoom)
	defer a.pmls[0].CIDs().Release(p.candidateIDs) // No effect after the ids are settled.
	if err := p.Accept(t); err != nil {
		return m, spec, err
	}
	return p.chosenPML, p.commSpec, nil
}
