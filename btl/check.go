package btl

import (
	"fmt"
	"math"

	"github.com/ferrympi/ferry/framework"
)

// CheckedModule returns m unless it is nil or its Caps violate the contract. In these cases it
// closes m and returns ErrConfig.
func CheckedModule(name string, m Module) (Module, error) {
	return framework.Checked(framework.BTL, name, m, func(m Module) string { return m.Caps().brokenRule() })
}

// brokenRule returns a violated rule of the contract, or "".
func (c Caps) brokenRule() string {
	switch {
	case c.FrameLimit < MinFrameLimit:
		return fmt.Sprintf("Caps.FrameLimit is %d, and at least %d are needed", c.FrameLimit, MinFrameLimit)
	case c.EagerLimit < 1 || c.EagerLimit > c.FrameLimit:
		return fmt.Sprintf("Caps.EagerLimit is %d, outside 1 to FrameLimit (%d)", c.EagerLimit, c.FrameLimit)
	case math.IsNaN(c.LatencyNS) || c.LatencyNS < 0:
		return fmt.Sprintf("Caps.LatencyNS is %v, less than 0 or no number", c.LatencyNS)
	case c.Ring < 0 || c.ReadFrom < 0:
		return fmt.Sprintf("Caps.Ring is %d and ReadFrom is %d, less than 0", c.Ring, c.ReadFrom)
	}
	return ""
}
