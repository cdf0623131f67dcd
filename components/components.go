// Package components is the list of what a program has compiled in: Standard
// returns a registry with every component that components.yaml, at the root of
// the repository, names. To add a component, add a line there and run
// `go generate ./components`.
//
// It stands on the components and is the only package that imports them. It
// does nothing by itself: there is no init, and each call makes a new registry.
package components

//go:generate go run ./internal/gen -manifest ../components.yaml -o components_gen.go
