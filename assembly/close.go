package assembly

import (
	"errors"
	"sync"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
)

// closing is the state of Close.
type closing struct {
	once    sync.Once
	err     error
	readers sync.RWMutex // See WhileOpen.
	// Whether the transports are closed or closing. Guarded by readers.
	isFreed bool
}

// Close frees all resources. Further calls return the result of the first.
func (a *Assembly) Close() error {
	a.closing.once.Do(func() {
		a.closing.err = a.close()
		if a.log != nil {
			a.closing.err = errors.Join(a.closing.err, a.log.close())
		}
	})
	return a.closing.err
}

// WhileOpen calls read, and returns true, unless the transports are closed or closing. Close waits until read returns. It protects
// reports on the streams of a process, which may end at any time. Calls do not nest.
func (a *Assembly) WhileOpen(read func()) bool {
	a.closing.readers.RLock()
	defer a.closing.readers.RUnlock()
	if a.closing.isFreed {
		return false
	}
	read()
	return true
}

func (a *Assembly) close() error {
	if a.client == nil {
		return nil
	}
	events, ok := framework.As[bootstrap.EventSource](a.client)
	if a.process != nil {
		ok = false // Events belong to the process.
		a.process.removeStream(a)
	}
	if ok {
		events.OnEvent(nil)
	}
	a.upcalls.Lock()
	a.upcalls.isClosing = true
	close(a.upcalls.stop)
	a.upcalls.Unlock()
	a.upcalls.running.Wait()
	a.closing.readers.Lock()
	a.closing.isFreed = true
	a.closing.readers.Unlock()
	err := a.Stack.Close()
	if ok {
		events.EndIncarnation()
	}
	if a.process == nil && a.options.Client == nil {
		err = errors.Join(err, a.client.Close())
	}
	return err
}
