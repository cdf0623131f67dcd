package mpi_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/ferrympi/ferry/mpi"
)

func TestAttributes_DupAndClose_CallHooks(t *testing.T) {
	_, c := singleton(t)
	var deleted []string
	del := func(v string) { deleted = append(deleted, v) }
	copied := mpi.NewKey(mpi.KeyHooks[string]{Copy: func(v string) (string, bool) { return v + "'", true }, Delete: del})
	refused := mpi.NewKey(mpi.KeyHooks[string]{Copy: func(v string) (string, bool) { return v, false }, Delete: del})
	private := mpi.NewKey(mpi.KeyHooks[string]{Delete: del})
	bare := mpi.NewKey(mpi.KeyHooks[error]{})
	if _, ok := mpi.Attr(c, copied); ok {
		t.Error("an attribute that was never set")
	}
	if err := errors.Join(mpi.SetAttr(c, copied, "a"), mpi.SetAttr(c, refused, "b"), mpi.SetAttr(c, private, "c"), mpi.SetAttr(c, bare, nil)); err != nil {
		t.Fatal(err)
	}
	if v, ok := mpi.Attr(c, bare); !ok || v != nil {
		t.Errorf("a nil value: %v, %v", v, ok)
	}
	d, err := c.Dup(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if v, ok := mpi.Attr(d, copied); !ok || v != "a'" {
		t.Errorf("the duplicate has %q, %v", v, ok)
	}
	for _, k := range []*mpi.Key[string]{refused, private} {
		if v, ok := mpi.Attr(d, k); ok {
			t.Errorf("the duplicate has %q", v)
		}
	}
	split, err := c.Split(t.Context(), 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := mpi.Attr(split, copied); ok {
		t.Error("only a duplicate gets attributes")
	}
	if err := split.Close(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(mpi.SetAttr(d, private, "e"), mpi.SetAttr(d, private, "f"), mpi.DeleteAttr(d, refused), mpi.SetAttr(d, refused, "g"), mpi.DeleteAttr(d, refused)); err != nil {
		t.Fatal(err)
	}
	if want := []string{"e", "g"}; !slices.Equal(deleted, want) {
		t.Errorf("deleted %q, want %q", deleted, want)
	}
	if _, ok := mpi.Attr(d, refused); ok {
		t.Error("a deleted attribute is there")
	}
	deleted = nil
	if err := errors.Join(d.Close(), c.Close()); err != nil {
		t.Fatal(err)
	}
	if want := []string{"f", "a'", "c", "b", "a"}; !slices.Equal(deleted, want) {
		t.Errorf("closing deleted %q, want %q: the last one first", deleted, want)
	}
	if _, ok := mpi.Attr(c, copied); ok {
		t.Error("a closed communicator has an attribute")
	}
	if err := mpi.SetAttr(c, copied, "z"); !errors.Is(err, mpi.ErrClosed) {
		t.Error(err)
	}
	if err := mpi.DeleteAttr(c, copied); !errors.Is(err, mpi.ErrClosed) {
		t.Error(err)
	}
}

func TestDeleteHook_UsesLibrary_Works(t *testing.T) {
	_, c := singleton(t)
	inner, err := c.Dup(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	key := mpi.NewKey(mpi.KeyHooks[*mpi.Comm]{Delete: func(d *mpi.Comm) {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}})
	if err := errors.Join(mpi.SetAttr(c, key, inner), c.Close()); err != nil {
		t.Fatal(err)
	}
	if err := inner.Close(); !errors.Is(err, mpi.ErrClosed) {
		t.Errorf("the hook did not close it: %v", err)
	}
}

func TestHook_Panics_SessionCloses(t *testing.T) {
	noLeak(t)
	s, c := singleton(t)
	var deleted []string
	del := func(v string) {
		deleted = append(deleted, v)
		if v == "bad" {
			panic("delete")
		}
	}
	copied := mpi.NewKey(mpi.KeyHooks[string]{Copy: func(v string) (string, bool) { return v + "'", true }, Delete: del})
	uncopied := mpi.NewKey(mpi.KeyHooks[string]{Copy: func(string) (string, bool) { panic("copy") }, Delete: del})
	panics := func(want string, f func()) {
		t.Helper()
		defer func() {
			t.Helper()
			if got := recover(); got != want {
				t.Errorf("panic %v, want %q", got, want)
			}
		}()
		f()
	}
	if err := errors.Join(mpi.SetAttr(c, copied, "a"), mpi.SetAttr(c, uncopied, "b")); err != nil {
		t.Fatal(err)
	}
	panics("copy", func() { c.Dup(t.Context()) })
	if err := mpi.Barrier(t.Context(), c); err != nil {
		t.Errorf("after a dup whose hook panicked: %v", err)
	}
	panics("copy", func() { c.Idup() })
	if want := []string{"a'", "a'"}; !slices.Equal(deleted, want) {
		t.Errorf("deleted %q, want %q: a duplicate without a user", deleted, want)
	}
	if err := mpi.Barrier(t.Context(), c); !errors.Is(err, mpi.ErrBroken) {
		t.Errorf("after an idup whose hook panicked: %v", err)
	}
	if err := errors.Join(mpi.DeleteAttr(c, uncopied), mpi.SetAttr(c, uncopied, "bad")); err != nil {
		t.Fatal(err)
	}
	deleted = nil
	panics("delete", func() { c.Close() })
	if want := []string{"bad", "a"}; !slices.Equal(deleted, want) {
		t.Errorf("closing deleted %q, want %q: all", deleted, want)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
