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

func TestModule_StreamsOfAProcess_ArePeersBesideIt(t *testing.T) {
	for name, transport := range map[string]btl.Component{"shm": shm.OnHeap(), "tcp": tcp.Component()} {
		t.Run(name, func(t *testing.T) {
			pmltest.Streams(t, pmltest.Stack{PML: ob1.Component(), BTLs: []btl.Component{self.Component(), transport}}, 5)
		})
	}
}
