package mpi

import (
	"context"
	"fmt"
	"reflect"

	"github.com/ferrympi/ferry/internal/mem"
)

// The functions here are the methods of Comm for slices of any element type
// without pointers. Any other type is ErrType. Elements are sent with their
// representation in memory, padding included.

// sendable returns ErrType if elements of type T cannot be sent.
func sendable[T any]() error {
	if !mem.PointerFree[T]() {
		return fmt.Errorf("%w: %s cannot be sent; use a type without pointers", ErrType, reflect.TypeFor[T]())
	}
	return nil
}

// Send is (*Comm).Send of elements.
func Send[T any](ctx context.Context, c *Comm, buf []T, dst, tag int) error {
	if err := sendable[T](); err != nil {
		return err
	}
	return c.Send(ctx, mem.Bytes(buf), dst, tag)
}

// Ssend is (*Comm).Ssend of elements.
func Ssend[T any](ctx context.Context, c *Comm, buf []T, dst, tag int) error {
	if err := sendable[T](); err != nil {
		return err
	}
	return c.Ssend(ctx, mem.Bytes(buf), dst, tag)
}

// Bsend is (*Comm).Bsend of elements.
func Bsend[T any](ctx context.Context, c *Comm, buf []T, dst, tag int) error {
	if err := sendable[T](); err != nil {
		return err
	}
	return c.Bsend(ctx, mem.Bytes(buf), dst, tag)
}

// Rsend is (*Comm).Rsend of elements.
func Rsend[T any](ctx context.Context, c *Comm, buf []T, dst, tag int) error {
	if err := sendable[T](); err != nil {
		return err
	}
	return c.Rsend(ctx, mem.Bytes(buf), dst, tag)
}

// Recv is (*Comm).Recv of elements. See Count for their number.
func Recv[T any](ctx context.Context, c *Comm, buf []T, src, tag int) (Status, error) {
	if err := sendable[T](); err != nil {
		return noMessage(), err
	}
	return c.Recv(ctx, mem.Bytes(buf), src, tag)
}

// Sendrecv is (*Comm).Sendrecv of elements.
func Sendrecv[T any](ctx context.Context, c *Comm, send []T, dst, stag int, recv []T, src, rtag int) (Status, error) {
	if err := sendable[T](); err != nil {
		return noMessage(), err
	}
	return c.Sendrecv(ctx, mem.Bytes(send), dst, stag, mem.Bytes(recv), src, rtag)
}

// SendrecvReplace is (*Comm).SendrecvReplace of elements.
func SendrecvReplace[T any](ctx context.Context, c *Comm, buf []T, dst, stag, src, rtag int) (Status, error) {
	if err := sendable[T](); err != nil {
		return noMessage(), err
	}
	return c.SendrecvReplace(ctx, mem.Bytes(buf), dst, stag, src, rtag)
}

// Isendrecv is (*Comm).Isendrecv of elements.
func Isendrecv[T any](c *Comm, send []T, dst, stag int, recv []T, src, rtag int) (Request, error) {
	if err := sendable[T](); err != nil {
		return Request{}, err
	}
	return c.Isendrecv(mem.Bytes(send), dst, stag, mem.Bytes(recv), src, rtag)
}

// IsendrecvReplace is (*Comm).IsendrecvReplace of elements.
func IsendrecvReplace[T any](c *Comm, buf []T, dst, stag, src, rtag int) (Request, error) {
	if err := sendable[T](); err != nil {
		return Request{}, err
	}
	return c.IsendrecvReplace(mem.Bytes(buf), dst, stag, src, rtag)
}

// Isend is (*Comm).Isend of elements.
func Isend[T any](c *Comm, buf []T, dst, tag int) (Request, error) {
	if err := sendable[T](); err != nil {
		return Request{}, err
	}
	return c.Isend(mem.Bytes(buf), dst, tag)
}

// Issend is (*Comm).Issend of elements.
func Issend[T any](c *Comm, buf []T, dst, tag int) (Request, error) {
	if err := sendable[T](); err != nil {
		return Request{}, err
	}
	return c.Issend(mem.Bytes(buf), dst, tag)
}

// Ibsend is (*Comm).Ibsend of elements.
func Ibsend[T any](c *Comm, buf []T, dst, tag int) (Request, error) {
	if err := sendable[T](); err != nil {
		return Request{}, err
	}
	return c.Ibsend(mem.Bytes(buf), dst, tag)
}

// Irsend is (*Comm).Irsend of elements.
func Irsend[T any](c *Comm, buf []T, dst, tag int) (Request, error) {
	if err := sendable[T](); err != nil {
		return Request{}, err
	}
	return c.Irsend(mem.Bytes(buf), dst, tag)
}

// Irecv is (*Comm).Irecv of elements.
func Irecv[T any](c *Comm, buf []T, src, tag int) (Request, error) {
	if err := sendable[T](); err != nil {
		return Request{}, err
	}
	return c.Irecv(mem.Bytes(buf), src, tag)
}

// Count returns how many elements of type T the message of st had
// (MPI_Get_count); false if it was no whole number of them.
func Count[T any](st Status) (int, bool) {
	size := mem.Size[T]()
	if size == 0 {
		return 0, st.Bytes == 0
	}
	return st.Bytes / size, st.Bytes%size == 0
}
