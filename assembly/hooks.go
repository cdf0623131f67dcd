package assembly

import (
	"sync"

	"github.com/ferrympi/ferry/pml"
)

// serialHooks calls the program's hooks one at a time. Goroutine ranks have separate locks, and their events may occur at the same time. No
// other lock is taken while mu is held, except by the hooks.
type serialHooks struct {
	mu sync.Mutex
	pml.Hooks
}

// serialize returns hooks that are called one at a time, or nil for nil.
func serialize(h pml.Hooks) pml.Hooks {
	if h == nil {
		return nil
	}
	return &serialHooks{Hooks: h}
}

// Event implements pml.Hooks. The mutex is released if the hook panics.
func (s *serialHooks) Event(e pml.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Hooks.Event(e)
}
