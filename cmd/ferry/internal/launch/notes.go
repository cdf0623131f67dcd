package launch

import "sync"

// A notifier calls functions on a separate goroutine, in the order of the calls to add. The
// supervisor uses it for Job.Note and for writes to standard error, which may block until they are
// read.
type notifier struct {
	// Closed when all is delivered after close.
	done chan struct{}

	mu       sync.Mutex
	changed  sync.Cond
	queue    []func()
	isClosed bool
}

func newNotifier() *notifier {
	n := &notifier{done: make(chan struct{})}
	n.changed.L = &n.mu
	go n.run()
	return n
}

// add queues a call. It never blocks.
func (n *notifier) add(call func()) {
	n.mu.Lock()
	n.queue = append(n.queue, call)
	n.mu.Unlock()
	n.changed.Signal()
}

// close ends the goroutine after the calls that are queued.
func (n *notifier) close() {
	n.mu.Lock()
	n.isClosed = true
	n.mu.Unlock()
	n.changed.Signal()
}

func (n *notifier) run() {
	defer close(n.done)
	for {
		n.mu.Lock()
		for len(n.queue) == 0 && !n.isClosed {
			n.changed.Wait()
		}
		calls := n.queue
		n.queue = nil
		n.mu.Unlock()
		if len(calls) == 0 {
			return
		}
		for _, call := range calls {
			call()
		}
	}
}
