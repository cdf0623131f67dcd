package mtl

import (
	"fmt"

	"github.com/ferrympi/ferry/framework"
)

// CheckedModule returns the module of a component's Open. If that is nil, or its Caps break the
// contract, CheckedModule closes it and returns ErrConfig.
func CheckedModule(name string, m Module) (Module, error) {
	return framework.Checked(framework.MTL, name, m, func(m Module) string { return m.Caps().brokenRule() })
}

// brokenRule returns a rule of the contract that the values break, or "".
func (c Caps) brokenRule() string {
	for _, w := range []struct {
		field             string
		bits, least, most int
	}{
		{"CIDBits", c.CIDBits, 1, 32}, {"SourceBits", c.SourceBits, 1, 31}, {"TagBits", c.TagBits, 1, 31}, {"EndpointBits", c.EndpointBits, 0, 16},
	} {
		if w.bits < w.least || w.bits > w.most {
			return fmt.Sprintf("Caps.%s is %d, outside %d to %d", w.field, w.bits, w.least, w.most)
		}
	}
	switch {
	case c.MaxMessage < 1:
		return fmt.Sprintf("Caps.MaxMessage is %d, and at least 1 is needed", c.MaxMessage)
	case c.Inject < 0 || c.Eager < 0:
		return fmt.Sprintf("Caps.Inject is %d and Eager is %d, less than 0", c.Inject, c.Eager)
	case c.ControlLimit < MinControlLimit:
		return fmt.Sprintf("Caps.ControlLimit is %d, and at least %d are needed", c.ControlLimit, MinControlLimit)
	}
	return ""
}
