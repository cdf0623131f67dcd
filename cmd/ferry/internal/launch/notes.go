package launch

import "sync"

// A notifier calls functions on a separate goroutine, in the order of the calls to add. The
// supervisor uses it for Job.Note and for writes to standard error, which may block until they are
// read.
type notifier struct {
	// Closed after close and the last call.
	allDelivered chan struct{}

	mu           sync.Mutex
	queueChanged sync.Cond
	pendingCalls []func()
	isClosed     bool
}

func newNotifier() *notifier {
	n := &notifier{allDelivered: make(chan struct{})}
	n.queueChanged.L = &n.mu
	go n.run()
	return n
}

// add queues a call. It never blocks.
func (n *notifier) add(call func()) {
	n.mu.Lock()
	n.pendingCalls = append(n.pendingCalls, call)
	n.mu.Unlock()
	n.queueChanged.Signal()
}

// close ends the goroutine after the calls that are queued.
func (n *notifier) close() {
	n.mu.Lock()
	n.isClosed = true
	n.mu.Unlock()
	n.queueChanged.Signal()
}

func (n *notifier) run() {
	defer close(n.allDelivered)
	for {
		n.mu.Lock()
		for len(n.pendingCalls) == 0 && !n.isClosed {
			n.queueChanged.Wait()
		}
		calls := n.pendingCalls
		n.pendingCalls = nil
		n.mu.Unlock()
		if len(calls) == 0 {
			return
		}
		for _, call := range calls {
			call()
		}
	}
}
