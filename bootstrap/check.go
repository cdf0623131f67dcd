package bootstrap

import (
	"fmt"

	"github.com/ferrympi/ferry/framework"
)

// CheckedClient returns the client of a component's Open. If that is nil, or its Identity breaks
// the contract, CheckedClient closes it and returns ErrConfig.
func CheckedClient(name string, c Client) (Client, error) {
	return framework.Checked(framework.Bootstrap, name, c, func(c Client) string { return c.Identity().brokenRule() })
}

// brokenRule returns a rule of the contract that the values violate, or "".
func (id Identity) brokenRule() string {
	switch {
	case id.Proc.Namespace == "":
		return "Identity.Proc has no namespace"
	case id.Size < 1:
		return fmt.Sprintf("Identity.Size is %d, and at least 1 is needed", id.Size)
	case int(id.Proc.Rank) < id.FirstRank || int(id.Proc.Rank) >= id.FirstRank+id.Size:
		return fmt.Sprintf("Identity.Proc is rank %d, outside mpi://WORLD (%d to %d)", id.Proc.Rank, id.FirstRank, id.FirstRank+id.Size-1)
	}
	return id.brokenMap()
}
