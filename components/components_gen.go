// Code generated from components.yaml by ferry component register; DO NOT EDIT.

package components

import (
	bootstrap_local "github.com/ferrympi/ferry/bootstrap/local"
	bootstrap_pmi1 "github.com/ferrympi/ferry/bootstrap/pmi1"
	bootstrap_pmix "github.com/ferrympi/ferry/bootstrap/pmix"
	btl_self "github.com/ferrympi/ferry/btl/self"
	btl_shm "github.com/ferrympi/ferry/btl/shm"
	btl_tcp "github.com/ferrympi/ferry/btl/tcp"
	coll_basic "github.com/ferrympi/ferry/coll/basic"
	coll_hier "github.com/ferrympi/ferry/coll/hier"
	coll_shm "github.com/ferrympi/ferry/coll/shm"
	coll_threads "github.com/ferrympi/ferry/coll/threads"
	coll_tuned "github.com/ferrympi/ferry/coll/tuned"
	"github.com/ferrympi/ferry/framework"
	mtl_ofi "github.com/ferrympi/ferry/mtl/ofi"
	mtl_ucx "github.com/ferrympi/ferry/mtl/ucx"
	pml_cm "github.com/ferrympi/ferry/pml/cm"
	pml_ob1 "github.com/ferrympi/ferry/pml/ob1"
)

// Standard returns a new registry with every component that components.yaml
// names, and with its preferences.
func Standard() *framework.Registry {
	r := framework.NewRegistry()
	r.Register(pml_ob1.Component())
	r.SetPriority("pml", "ob1", 20)
	r.Register(pml_cm.Component())
	r.SetPriority("pml", "cm", 10)
	r.Register(mtl_ofi.Component())
	r.SetPriority("mtl", "ofi", 20)
	r.Register(mtl_ucx.Component())
	r.SetPriority("mtl", "ucx", 15)
	r.Register(btl_self.Component())
	r.SetPriority("btl", "self", 50)
	r.Register(btl_shm.Component())
	r.SetPriority("btl", "shm", 40)
	r.Register(btl_tcp.Component())
	r.SetPriority("btl", "tcp", 30)
	r.Register(bootstrap_local.Component())
	r.SetPriority("bootstrap", "local", 10)
	r.Register(bootstrap_pmi1.Component())
	r.SetPriority("bootstrap", "pmi1", 35)
	r.Register(bootstrap_pmix.Component())
	r.SetPriority("bootstrap", "pmix", 30)
	r.Register(coll_tuned.Component())
	r.SetPriority("coll", "tuned", 20)
	r.Register(coll_basic.Component())
	r.SetPriority("coll", "basic", 10)
	r.Register(coll_shm.Component())
	r.SetPriority("coll", "shm", 40)
	r.Register(coll_hier.Component())
	r.SetPriority("coll", "hier", 35)
	r.Register(coll_threads.Component())
	r.SetPriority("coll", "threads", 45)
	r.SetNode("pml", "cm", "ob1")
	r.NotBuilt("pml", "ucx", "UCX is an MTL here", "pml=cm, mtl=ucx: UCX matches messages, and pml cm runs over it")
	r.SetDefault("pml", "^cm")
	return r
}
