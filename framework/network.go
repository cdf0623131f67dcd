package framework

import (
	"context"
	"fmt"
	"slices"
)

// PreferNetwork adapts a selection to the number of nodes of a job. On several nodes, without a configured PML, and with an MTL whose verdict names a
// network (Verdict.Network), it prefers the PML over MTLs. The other PMLs stay behind it for peers without such a network. On one node it only
// adds the reason to the verdict. It reports whether the network is preferred.
func (r *Registry) PreferNetwork(ctx context.Context, vals *Values, all map[Kind]*Selection, nodes bool) (bool, error) {
	mtls, pmls := all[MTL], all[PML]
	value, _ := vals.Get(string(PML))
	if mtls == nil || pmls == nil || value.isSet() {
		return false, nil
	}
	i := slices.IndexFunc(mtls.Chosen, func(c Choice) bool { return c.Verdict.Network != "" })
	if i < 0 {
		return false, nil
	}
	mtl := mtls.Chosen[i].Verdict
	using, err := r.pmlsUsing(MTL, vals)
	if err != nil || len(using) == 0 {
		return false, err
	}
	name := using[0]
	v := pmls.verdict(name)
	if v.Status != StatusNotSelected {
		return false, nil // It was requested.
	}
	if !nodes {
		v.Reason += fmt.Sprintf("; this machine has %s, but all processes of the job are on this machine", mtl.Network)
		return false, nil
	}
	probed, err := r.probe(ctx, PML, vals, func(n string) bool { return n == name })
	if err != nil {
		return false, err
	}
	for _, c := range probed {
		if c.Verdict.Name != name || c.Component == nil {
			continue
		}
		if *v = c.Verdict; v.Status != StatusUsable {
			return false, nil
		}
		v.Status = StatusSelected
		v.Reason = fmt.Sprintf("the job has processes on other nodes, this machine has %s (mtl %s), and no pml is configured", mtl.Network, mtl.Name)
		c.Verdict = *v
		pmls.Chosen = append([]Choice{c}, pmls.Chosen...)
		pmls.preferredReason = fmt.Sprintf("%s is preferred: %s", name, v.Reason)
	}
	return pmls.preferredReason != "", nil
}
