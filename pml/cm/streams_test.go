package cm_test

import (
	"testing"

	"github.com/ferrympi/ferry/mtl/mtltest"
	"github.com/ferrympi/ferry/pml/pmltest"
)

func TestModule_StreamsOfAProcess_ArePeersBesideIt(t *testing.T) {
	pmltest.Streams(t, stack(mtltest.Options{}), 5)
}
