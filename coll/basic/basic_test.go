package basic

import (
	"testing"

	"github.com/ferrympi/ferry/coll/colltest"
	"go.uber.org/goleak"
)

func TestContract(t *testing.T) {
	defer goleak.VerifyNone(t)
	colltest.Cases(Component()).Run(t)
}
