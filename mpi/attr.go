package mpi

import "slices"

// KeyHooks says what happens to the values of a key. Hooks are called by the
// goroutine that duplicates, deletes or closes, and may use this package.
type KeyHooks[T any] struct {
	// Copy makes the value of a duplicate; false leaves the duplicate without.
	// nil: duplicates never have the attribute (MPI_COMM_NULL_COPY_FN).
	Copy func(T) (T, bool)
	// Delete sees a value that is deleted, replaced, or whose communicator is
	// closed. nil does nothing.
	Delete func(T)
}

// Key names an attribute: a value of type T that each communicator may have
// (MPI-4.1 section 7.7). Keys are local, cost nothing, and need not be freed.
type Key[T any] struct{ hooks KeyHooks[T] }

// NewKey makes a key that differs from all others (MPI_Comm_create_keyval).
func NewKey[T any](hooks KeyHooks[T]) *Key[T] { return &Key[T]{hooks} }

// attribute is one value of a communicator, without its type.
type attribute struct {
	key, value any
	copy       func() (attribute, bool)
	delete     func()
}

func (k *Key[T]) attribute(v T) attribute {
	return attribute{
		key: k, value: v,
		copy: func() (attribute, bool) {
			if k.hooks.Copy == nil {
				return attribute{}, false
			}
			w, ok := k.hooks.Copy(v)
			return k.attribute(w), ok
		},
		delete: func() {
			if k.hooks.Delete != nil {
				k.hooks.Delete(v)
			}
		},
	}
}

// SetAttr stores v in the communicator under k (MPI_Comm_set_attr). It is local.
// A value that was there is deleted. ErrClosed after Close.
func SetAttr[T any](c *Comm, k *Key[T], v T) error {
	c.mu.Lock()
	if c.closed.Load() {
		c.mu.Unlock()
		return c.errClosed()
	}
	old, had := c.removeAttr(k)
	c.attrs = append(c.attrs, k.attribute(v))
	c.mu.Unlock()
	if had {
		old.delete()
	}
	return nil
}

// Attr returns what the communicator has under k (MPI_Comm_get_attr), and
// whether it has anything. A closed communicator has nothing.
func Attr[T any](c *Comm, k *Key[T]) (T, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := c.attrIndex(k); i >= 0 {
		v, _ := c.attrs[i].value.(T) // a nil interface is no T, and comes back as nil
		return v, true
	}
	var none T
	return none, false
}

// DeleteAttr takes the value under k out of the communicator, and calls the
// key's Delete (MPI_Comm_delete_attr). Without a value it does nothing.
// ErrClosed after Close.
func DeleteAttr[T any](c *Comm, k *Key[T]) error {
	c.mu.Lock()
	if c.closed.Load() {
		c.mu.Unlock()
		return c.errClosed()
	}
	old, had := c.removeAttr(k)
	c.mu.Unlock()
	if had {
		old.delete()
	}
	return nil
}

// attrIndex finds the attribute of a key: few communicators have more than a
// handful. c.mu held.
func (c *Comm) attrIndex(key any) int {
	return slices.IndexFunc(c.attrs, func(a attribute) bool { return a.key == key })
}

// removeAttr takes an attribute out. c.mu held.
func (c *Comm) removeAttr(key any) (attribute, bool) {
	i := c.attrIndex(key)
	if i < 0 {
		return attribute{}, false
	}
	old := c.attrs[i]
	c.attrs = slices.Delete(c.attrs, i, i+1)
	return old, true
}

// copyAttrs returns the attributes of a duplicate. The hooks run without a lock.
func (c *Comm) copyAttrs() []attribute {
	c.mu.Lock()
	attrs := slices.Clone(c.attrs)
	c.mu.Unlock()
	var copies []attribute
	for _, a := range attrs {
		if b, ok := a.copy(); ok {
			copies = append(copies, b)
		}
	}
	return copies
}

// deleteAttrs deletes all attributes of a communicator that is closed.
func (c *Comm) deleteAttrs() {
	c.mu.Lock()
	attrs := c.attrs
	c.attrs = nil
	c.mu.Unlock()
	deleteAttrs(attrs)
}

// deleteAttrs calls the hooks, the last set attribute first: the only order that
// MPI ever demands (of MPI_COMM_SELF, MPI-4.1 section 11.2.4).
func deleteAttrs(attrs []attribute) {
	for _, a := range slices.Backward(attrs) {
		a.delete()
	}
}
