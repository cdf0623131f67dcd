package framework

import "fmt"

// Requirement says that the modules of a component stand on modules of another
// framework. The assembly opens those, and `ferry explain` prints it.
type Requirement struct {
	Kind Kind
	// All asks for every selected component that opens, by preference; otherwise
	// the first that opens.
	All bool
	// Node asks for a module for the processes of this node only. Which component
	// that is stands in components.yaml (node:).
	Node bool
	// By is the parameter that asks for it, in full; empty: nothing switches it off.
	By string
	// For says in a few words what the modules are needed for.
	For string
}

// Requirer is an optional ability of a Component: its modules need others.
type Requirer interface {
	// Requires returns the requirements under these parameters, which are filled.
	Requires(params any) []Requirement
}

// Requires returns the requirements of a component; none, if it is not a Requirer.
func Requires(c Component, params any) []Requirement {
	if r, ok := As[Requirer](c); ok {
		return r.Requires(params)
	}
	return nil
}

// Rejection is a component that does not serve a process, and why.
type Rejection struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// Opened is an open module and the name of its component.
type Opened[M any] struct {
	Name   string
	Module M
}

// Opener opens what a component has required. It is the assembly's, which also
// closes the modules, after the one for which they were opened.
type Opener interface {
	// Open opens the modules of a kind that was required, in order of preference, and
	// adds them to the engine. up gives what a module hands up to, by the name of its
	// component. A component that does not open is left out; the error says why none
	// is left, or why one that the user has asked for by name does not open.
	Open(kind Kind, up func(name string) any) ([]Opened[any], error)

	// NotOpen returns the components of a kind that are compiled in and not open, and why:
	// they were not selected, this machine lacks something, or they failed.
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
