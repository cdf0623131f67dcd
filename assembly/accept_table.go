package assembly

import (
	"context"

	"github.com/ferrympi/ferry/assembly/wireup"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

// AcceptTable prepares this process for the communicator of a table, without messages. A creation in levels does the same with the
// table that it has received. A model of large jobs (internal/scale) measures the memory for it. The table has the nonce of this
// process, and ids that a process without communicators offers. It is not in memory that others write to.
func (a *Assembly) AcceptTable(t *wireup.Table, group []framework.Proc, rank int) (m PML, spec pml.CommSpec, err error) {
	p := &levelPort{Assembly: a, ctx: context.Background(), group: group, rank: rank}
	p.ids = a.pmls[0].CIDs().OfferFor(cid.PolicyAgree, len(group), levelsRoom)
	defer a.pmls[0].CIDs().Release(p.ids) // Does nothing once the ids are settled.
	if err := p.Accept(t); err != nil {
		return m, spec, err
	}
	return p.module, p.spec, nil
}
