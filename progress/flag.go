package progress

import (
	"sync/atomic"

	"github.com/ferrympi/ferry/internal/cpu"
)

// flag is a boolean that is changed under a lock and may be read without it.
type flag struct{ v uint32 }

// isSet requires the lock. load does not.
func (f *flag) isSet() bool { return f.v != 0 }
func (f *flag) load() bool  { return atomic.LoadUint32(&f.v) != 0 }

// set and clear do not wait for earlier stores. A later load may be executed before them.
func (f *flag) set()   { cpu.Store32(&f.v, 1) }
func (f *flag) clear() { cpu.Store32(&f.v, 0) }

// clearOrdered is clear, executed before all later loads.
func (f *flag) clearOrdered() { atomic.StoreUint32(&f.v, 0) }
