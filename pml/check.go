package pml

import (
	"fmt"
	"slices"

	"github.com/ferrympi/ferry/framework"
)

// CheckedModule returns the module of a component's Open. If that is nil, or its Caps break the
// contract, CheckedModule closes it and returns ErrConfig.
func CheckedModule(name string, m Module) (Module, error) {
	return framework.Checked(framework.PML, name, m, func(m Module) string { return m.Caps().brokenRule() })
}

// brokenRule returns a rule of the contract that the values break, or "".
func (c Caps) brokenRule() string {
	switch {
	case c.TagMax < 1:
		return fmt.Sprintf("Caps.TagMax is %d, and at least 1 is needed", c.TagMax)
	case c.MaxMessage < 1:
		return fmt.Sprintf("Caps.MaxMessage is %d, and at least 1 is needed", c.MaxMessage)
	case !slices.IsSorted(c.Steps):
		return fmt.Sprintf("Caps.Steps are not sorted: %v", c.Steps)
	}
	return ""
}
