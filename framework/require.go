package framework

import "fmt"

// Requirement is a dependency of a component's modules on modules of another framework. The assembly opens those, and `ferry explain` prints it.
type Requirement struct {
	Kind Kind
	// All requires every selected component that opens, by preference. Otherwise the first that opens is sufficient.
	All bool
	// Node requires a module for the processes of this node only. components.yaml names the component (node:).
	Node bool
	// By is the full name of the parameter that controls the requirement, or empty if it cannot be switched off.
	By string
	// For is the purpose of the modules in a few words.
	For string
}

// Requirer is an optional interface of a Component with requirements.
type Requirer interface {
	// Requires returns the requirements with these parameters, which are filled.
	Requires(params any) []Requirement
}

// Requires returns the requirements of a component, none if it is not a Requirer.
func Requires(c Component, params any) []Requirement {
	if r, ok := As[Requirer](c); ok {
		return r.Requires(params)
	}
	return nil
}

// Rejection is a component that does not serve a process, with the reason.
type Rejection struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// Opened is an open module with the name of its component.
type Opened[M any] struct {
	Name   string
	Module M
}

// Opener opens the requirements of a component. The assembly implements it, and closes the modules after the module that requires them.
type Opener interface {
	// Open opens the modules of a required kind in order of preference, and adds them to the engine. up returns the receiver of a
	// module's upcalls, by the name of its component. Components that fail to open are skipped. The error has the reasons if none is left,
	// or if a requested component fails.
	Open(kind Kind, up func(name string) any) ([]Opened[any], error)

	// NotOpen returns the components of a kind that are compiled in and not open, with the reasons. They were not selected, failed, or lack
	// something on this machine.
	NotOpen(kind Kind) []Rejection
}

// Open is Opener.Open for modules of type M, the contract of kind.
func Open[M any](o Opener, kind Kind, up func(name string) any) ([]Opened[M], error) {
	opened, err := o.Open(kind, up)
	if err != nil {
		return nil, err
	}
	out := make([]Opened[M], len(opened))
	for i, m := range opened {
		module, ok := m.Module.(M)
		if !ok {
			return nil, fmt.Errorf("%w: component %s %s: its module (%T) does not implement its framework's contract", ErrConfig, kind, m.Name, m.Module)
		}
		out[i] = Opened[M]{m.Name, module}
	}
	return out, nil
}
