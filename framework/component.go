// Package framework defines the vocabulary of ferry's layers. It has components, the registry of components, selection with a verdict on each
// component, parameters, names of processes, and the errors of all layers.
//
// It imports the standard library only. It has no knowledge of transports, protocols or configuration files.
package framework

import "context"

// Kind names a framework, which is a family of components with one contract.
type Kind string

// The frameworks that ferry defines. A registry accepts others.
const (
	PML       Kind = "pml"       // Point-to-point management layer.
	MTL       Kind = "mtl"       // Matching transport layer.
	BTL       Kind = "btl"       // Byte transfer layer.
	Bootstrap Kind = "bootstrap" // Wire-up through a launcher.
	Coll      Kind = "coll"      // Collective operations.
)

// Info describes a component.
type Info struct {
	Kind Kind
	// Lower case letters, digits and '_'. Unique within Kind.
	Name string
	// Of the component.
	Version string
	// One line for `ferry info`.
	Summary string
	// Among usable components the highest is preferred.
	Priority int
}

// A Component is one implementation of a framework's contract. Each contract
// package extends this interface by its own Open method.
//
// Components are stateless values. Open returns the state, and may be called again after that state was closed.
type Component interface {
	Info() Info

	// Params returns a pointer to a new parameter struct with the tags of ParamsOf, a new *Declared, or nil for a component without
	// parameters. The caller fills it and passes it to Probe and Open.
	Params() any

	// Probe checks locally whether the component can be used on this machine. It contacts no peer, leaves no resource open, and returns
	// within milliseconds. params is a filled result of Params.
	Probe(ctx context.Context, params any) Verdict
}

// Basic implements Component, except for Open, for a component without parameters that is always usable. Components embed it.
type Basic Info

// Info implements Component.
func (b Basic) Info() Info { return Info(b) }

// Params implements Component.
func (Basic) Params() any { return nil }

// Probe implements Component.
func (Basic) Probe(context.Context, any) Verdict { return Usable() }

// As returns v as the optional interface T. It unwraps values with a method Unwrap() any, such as tracing and fault injection, until one
// implements T. The outermost implementation is returned.
func As[T any](v any) (T, bool) {
	for v != nil {
		if t, ok := v.(T); ok {
			return t, true
		}
		w, ok := v.(interface{ Unwrap() any })
		if !ok {
			break
		}
		v = w.Unwrap()
	}
	var zero T
	return zero, false
}
