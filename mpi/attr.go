package mpi

import "slices"

// KeyHooks are the functions of a key that handle its values. The goroutine that duplicates, deletes or closes calls them. They may use this
// package. If a hook panics, the remaining hooks are called and the panic continues in that goroutine. The deletion or the close has taken effect
// then. A duplicate is removed, and if Idup has started it, the collectives of the communicator are broken, because other members have theirs.
type KeyHooks[T any] struct {
	// Copy returns the value for a duplicate. If it returns false, the duplicate has no value. If Copy is nil, no duplicate has a value
	// (MPI_COMM_NULL_COPY_FN).
	Copy func(T) (T, bool)
	// Delete is called with a value that is deleted or replaced, or whose communicator is closed. It may be nil.
	Delete func(T)
}

// Key identifies an attribute, which is a value of type T that a communicator may have (MPI-4.1 section 7.7). Keys are local, need no resources, and
// are not freed.
type Key[T any] struct{ hooks KeyHooks[T] }

// NewKey creates a key that differs from all others (MPI_Comm_create_keyval).
func NewKey[T any](hooks KeyHooks[T]) *Key[T] { return &Key[T]{hooks} }

// attribute is one value of a communicator under some key.
type attribute interface {
	under() any // The key.
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

// Attr returns the value of a communicator under k (MPI_Comm_get_attr), and whether there is one. A closed communicator has none.
func Attr[T any](c *Comm, k *Key[T]) (T, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := c.attrIndex(k); i >= 0 {
		return c.attrs[i].(valueOf[T]).value, true
	}
	var none T
	return none, false
}

// DeleteAttr removes the value under k from the communicator, and calls the key's Delete (MPI_Comm_delete_attr). It has no effect without a value. It
// returns ErrClosed after Close.
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

// attrIndex returns the index of the attribute of a key. Most communicators have few. c.mu is held.
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
		if !whole { // A hook has panicked.
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

// deleteAttrs calls the hooks of all attributes in reverse order of SetAttr, as MPI requires for MPI_COMM_SELF (MPI-4.1 section 11.2.4). If one
// panics, it calls the others first.
func deleteAttrs(attrs []attribute) {
	if last := len(attrs) - 1; last >= 0 {
		defer deleteAttrs(attrs[:last])
		attrs[last].delete()
	}
}
