package mpi

import "slices"

// KeyHooks says what happens to the values of a key. Hooks are called by the
// goroutine that duplicates, deletes or closes, and may use this package. A panic
// of one goes on to that goroutine when the others have been called: what was to be
// deleted or closed is; of a duplicate nothing is left, and an Idup that began so
// breaks the communicator's collectives, because others have theirs.
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

// attribute is one value of a communicator under some key.
type attribute interface {
	under() any // the key
	copy() (attribute, bool)
	delete()
}

type valueOf[T any] struct {
	key   *Key[T]
	value T
}

func (a valueOf[T]) under() any { return a.key }

func (a valueOf[T]) copy() (attribute, bool) {
	if a.key.hooks.Copy == nil {
		return nil, false
	}
	v, ok := a.key.hooks.Copy(a.value)
	return valueOf[T]{a.key, v}, ok
}

func (a valueOf[T]) delete() {
	if a.key.hooks.Delete != nil {
		a.key.hooks.Delete(a.value)
	}
}

// SetAttr stores v in the communicator under k (MPI_Comm_set_attr). It is local.
// A value that was there is deleted. ErrClosed after Close.
func SetAttr[T any](c *Comm, k *Key[T], v T) error {
	return c.replaceAttr(k, valueOf[T]{k, v})
}

// Attr returns what the communicator has under k (MPI_Comm_get_attr), and
// whether it has anything. A closed communicator has nothing.
func Attr[T any](c *Comm, k *Key[T]) (T, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := c.attrIndex(k); i >= 0 {
		return c.attrs[i].(valueOf[T]).value, true
	}
	var none T
	return none, false
}

// DeleteAttr takes the value under k out of the communicator, and calls the
// key's Delete (MPI_Comm_delete_attr). Without a value it does nothing.
// ErrClosed after Close.
func DeleteAttr[T any](c *Comm, k *Key[T]) error { return c.replaceAttr(k) }

// replaceAttr puts an attribute, or none, in place of the one that has the key. Hooks
// run without a lock.
func (c *Comm) replaceAttr(key any, by ...attribute) error {
	c.mu.Lock()
	if c.isClosed() {
		c.mu.Unlock()
		return c.errClosed()
	}
	var old []attribute
	if i := c.attrIndex(key); i >= 0 {
		old = []attribute{c.attrs[i]}
		c.attrs = slices.Delete(c.attrs, i, i+1)
	}
	c.attrs = append(c.attrs, by...)
	c.mu.Unlock()
	deleteAttrs(old)
	return nil
}

// attrIndex finds the attribute of a key: few communicators have more than a
// handful. c.mu held.
func (c *Comm) attrIndex(key any) int {
	return slices.IndexFunc(c.attrs, func(a attribute) bool { return a.under() == key })
}

// copyAttrs returns the attributes of a duplicate.
func (c *Comm) copyAttrs() []attribute {
	c.mu.Lock()
	attrs := slices.Clone(c.attrs)
	c.mu.Unlock()
	var copies []attribute
	whole := false
	defer func() {
		if !whole { // a hook has panicked
			deleteAttrs(copies)
		}
	}()
	for _, a := range attrs {
		if b, ok := a.copy(); ok {
			copies = append(copies, b)
		}
	}
	whole = true
	return copies
}

// deleteAttrs calls the hooks, each of them also when one panics, the last set
// attribute first: the only order that MPI ever demands (of MPI_COMM_SELF, MPI-4.1
// section 11.2.4).
func deleteAttrs(attrs []attribute) {
	if last := len(attrs) - 1; last >= 0 {
		defer deleteAttrs(attrs[:last])
		attrs[last].delete()
	}
}
