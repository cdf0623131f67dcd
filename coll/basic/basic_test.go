package basic

import (
	"testing"

	"github.com/ferrympi/ferry/coll/colltest"
	"github.com/ferrympi/ferry/framework/scripttest"
	"go.uber.org/goleak"
)

func TestContract(t *testing.T) {
	defer goleak.VerifyNone(t)
	colltest.Cases(Component()).Run(t)
}

// TestSchedules prints the steps of each member for 2, 3, 5 and 8 members.
func TestSchedules(t *testing.T) {
	scripttest.Run(t, "testdata/*.txt", func() func(string) ([]string, error) {
		return colltest.Script(Component(), nil)
	})
}
