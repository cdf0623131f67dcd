package mpi

import (
	"context"
	"fmt"
	"reflect"

	"github.com/ferrympi/ferry/internal/mem"
)

// The functions here are the methods of Comm for slices of any element type
// without pointers; any other type is ErrType. Elements travel as they lie in
// memory, padding included.

// bytesOf returns the memory of buf.
func bytesOf[T any](buf []T) ([]byte, error) {
	if !mem.PointerFree[T]() {
		return nil, errType[T]()
	}
	return mem.Bytes(buf), nil
}

func errType[T any]() error {
	return fmt.Errorf("%w: %s can't be sent; use a type made of numbers", ErrType, reflect.TypeFor[T]())
}

// Send is (*Comm).Send of elements.
func Send[T any](ctx context.Context, c *Comm, buf []T, dst, tag int) error {
	b, err := bytesOf(buf)
	if err != nil {
		return err
	}
	return c.Send(ctx, b, dst, tag)
}

// Ssend is (*Comm).Ssend of elements.
func Ssend[T any](ctx context.Context, c *Comm, buf []T, dst, tag int) error {
	b, err := bytesOf(buf)
	if err != nil {
		return err
	}
	return c.Ssend(ctx, b, dst, tag)
}

// Bsend is (*Comm).Bsend of elements.
func Bsend[T any](ctx context.Context, c *Comm, buf []T, dst, tag int) error {
	b, err := bytesOf(buf)
	if err != nil {
		return err
	}
	return c.Bsend(ctx, b, dst, tag)
}

// Rsend is (*Comm).Rsend of elements.
func Rsend[T any](ctx context.Context, c *Comm, buf []T, dst, tag int) error {
	b, err := bytesOf(buf)
	if err != nil {
		return err
	}
	return c.Rsend(ctx, b, dst, tag)
}

// Recv is (*Comm).Recv of elements. See Count for their number.
func Recv[T any](ctx context.Context, c *Comm, buf []T, src, tag int) (Status, error) {
	b, err := bytesOf(buf)
	if err != nil {
		return noMessage(), err
	}
	return c.Recv(ctx, b, src, tag)
}

// Sendrecv is (*Comm).Sendrecv of elements.
func Sendrecv[T any](ctx context.Context, c *Comm, send []T, dst, stag int, recv []T, src, rtag int) (Status, error) {
	out, err := bytesOf(send)
	if err != nil {
		return noMessage(), err
	}
	return c.Sendrecv(ctx, out, dst, stag, mem.Bytes(recv), src, rtag)
}

// Isend is (*Comm).Isend of elements.
func Isend[T any](c *Comm, buf []T, dst, tag int) (Request, error) {
	b, err := bytesOf(buf)
	if err != nil {
		return Request{}, err
	}
	return c.Isend(b, dst, tag)
}

// Issend is (*Comm).Issend of elements.
func Issend[T any](c *Comm, buf []T, dst, tag int) (Request, error) {
	b, err := bytesOf(buf)
	if err != nil {
		return Request{}, err
	}
	return c.Issend(b, dst, tag)
}

// Irecv is (*Comm).Irecv of elements.
func Irecv[T any](c *Comm, buf []T, src, tag int) (Request, error) {
	b, err := bytesOf(buf)
	if err != nil {
		return Request{}, err
	}
	return c.Irecv(b, src, tag)
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
