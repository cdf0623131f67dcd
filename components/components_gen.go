// Code generated from components.yaml by components/internal/gen; DO NOT EDIT.

package components

import (
	bootstraplocal "github.com/ferrympi/ferry/bootstrap/local"
	btlself "github.com/ferrympi/ferry/btl/self"
	btlshm "github.com/ferrympi/ferry/btl/shm"
	collbasic "github.com/ferrympi/ferry/coll/basic"
	"github.com/ferrympi/ferry/framework"
	mtlofi "github.com/ferrympi/ferry/mtl/ofi"
	pmlcm "github.com/ferrympi/ferry/pml/cm"
	pmlob1 "github.com/ferrympi/ferry/pml/ob1"
)

// Standard returns a new registry with every component that components.yaml
// names, and with its preferences.
func Standard() *framework.Registry {
	r := framework.NewRegistry()
	r.Register(pmlob1.Component())
	r.SetPriority("pml", "ob1", 20)
	r.Register(pmlcm.Component())
	r.SetPriority("pml", "cm", 10)
	r.Register(mtlofi.Component())
	r.SetPriority("mtl", "ofi", 20)
	r.Register(btlself.Component())
	r.SetPriority("btl", "self", 50)
	r.Register(btlshm.Component())
	r.SetPriority("btl", "shm", 40)
	r.Register(bootstraplocal.Component())
	r.SetPriority("bootstrap", "local", 10)
	r.Register(collbasic.Component())
	r.SetPriority("coll", "basic", 10)
	r.NotBuilt("pml", "ucx", "this version of ferry has no UCX support", "pml=ob1 runs over any BTL")
	r.NotBuilt("btl", "tcp", "this version of ferry has no TCP transport", "run all ranks on one node")
	r.NotBuilt("bootstrap", "pmi1", "this version of ferry does not speak PMI-1", "start the program with ferry run")
	r.NotBuilt("bootstrap", "pmix", "this version of ferry does not speak PMIx", "start the program with ferry run")
	r.SetDefault("pml", "^cm")
	return r
}
