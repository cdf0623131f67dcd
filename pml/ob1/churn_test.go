package ob1_test

import (
	"testing"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/btl/self"
	"github.com/ferrympi/ferry/btl/shm"
	"github.com/ferrympi/ferry/btl/tcp"
	"github.com/ferrympi/ferry/pml/ob1"
	"github.com/ferrympi/ferry/pml/pmltest"
)

// The number of processes in the life of a job is unbounded, but few exist at a time.
func TestModule_ProcessesComeAndGo_MemoryIsBounded(t *testing.T) {
	for name, transport := range map[string]btl.Component{"shm": shm.Component(), "tcp": tcp.Component()} {
		t.Run(name, func(t *testing.T) {
			pmltest.Visits(t, pmltest.Stack{PML: ob1.Component(), BTLs: []btl.Component{self.Component(), transport}}, 200)
		})
	}
}
