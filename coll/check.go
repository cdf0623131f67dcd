package coll

import (
	"fmt"

	"github.com/ferrympi/ferry/framework"
)

// Check returns ErrConfig if the offer of component name violates the contract.
func (o *Offer) Check(name string) error {
	if len(o.Algorithms) == 0 {
		return framework.Breach(framework.Coll, name, "Query returned an offer without algorithms; it must return nil for a shape that it does not serve")
	}
	for _, a := range o.Algorithms {
		if a.Name == "" || a.Plan == nil {
			return framework.Breach(framework.Coll, name, fmt.Sprintf("Query returned an algorithm %q for %v without a name or a Plan", a.Name, a.Op))
		}
	}
	return nil
}

// OpenInstance calls Open. It returns ErrConfig if Open returns neither an instance nor an error.
func (o ComponentOffer) OpenInstance(env Env) (Instance, error) {
	x, err := o.Open(env)
	if err != nil {
		return x, err
	}
	if err := framework.CheckOpened(framework.Coll, o.Component, x); err != nil {
		return nil, err
	}
	return x, nil
}
