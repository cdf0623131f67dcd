// Package framework is ferry's vocabulary: what a component is, how a registry
// holds components, how selection chooses among them and says why, how
// parameters are declared and read, how processes are named, and the errors
// that all layers share.
//
// It stands on the standard library only, and never sees a transport, a
// protocol or a configuration file.
package framework

import "context"

// Kind names a framework: a family of components that implement one contract.
type Kind string

// The frameworks that ferry defines. A registry accepts others.
const (
	PML       Kind = "pml"       // point-to-point management layer
	MTL       Kind = "mtl"       // matching transport layer
	BTL       Kind = "btl"       // byte transfer layer
	Bootstrap Kind = "bootstrap" // wire-up through a launcher
	Coll      Kind = "coll"      // collective operations
)

// Info says who a component is.
type Info struct {
	Kind     Kind
	Name     string // lower case letters, digits and '_'; unique within Kind
	Version  string // the component's own version
	Summary  string // one line for `ferry info`
	Priority int    // higher is preferred among usable components
}

// A Component is one implementation of a framework's contract. Each contract
// package extends this interface by its own Open method.
//
// Components are stateless values: Open makes the state, and may be called
// again after what it returned was closed.
type Component interface {
	Info() Info

	// Params returns a pointer to a new parameter struct (see ParamsOf for its
	// tags), a new *Declared, or nil when the component has none. The caller fills
	// it and hands it to Probe and Open.
	Params() any

	// Probe checks, cheaply and locally, whether the component can be used on
	// this machine. It contacts no peer, keeps nothing open and returns within
	// milliseconds. params is what Params returned, filled.
	Probe(ctx context.Context, params any) Verdict
}

// Basic is a Component's part that has no parameters, and that can always be used: a
// component embeds it, and adds Open.
type Basic Info

// Info implements Component.
func (b Basic) Info() Info { return Info(b) }

// Params implements Component.
func (Basic) Params() any { return nil }

// Probe implements Component.
func (Basic) Probe(context.Context, any) Verdict { return Usable() }

// As returns v as the optional ability T. It looks through wrappers (tracing,
// fault injection) that have a method Unwrap() any, so that a wrapper does not
// hide what the wrapped value can do. A wrapper that implements T itself wins.
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
