package assembly

import (
	"errors"
	"sync"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
)

// closing is the state of Close.
type closing struct {
	closeOnce   sync.Once
	closeErr    error
	whileOpenMu sync.RWMutex // See WhileOpen.
	// The transports are closed or closing. Guarded by whileOpenMu.
	isFreed bool
}

// Close frees all resources. Further calls return the result of the first.
func (a *Assembly) Close() error {
	a.closing.closeOnce.Do(func() {
		a.closing.closeErr = a.close()
		if a.logSink != nil {
			a.closing.closeErr = errors.Join(a.closing.closeErr, a.logSink.close())
		}
	})
	return a.closing.closeErr
}

// WhileOpen calls read, and returns true, unless the transports are closed or closing. Close waits until read returns. It protects
// reports on the streams of a process, which may end at any time. Calls do not nest.
func (a *Assembly) WhileOpen(read func()) bool {
	a.closing.whileOpenMu.RLock()
	defer a.closing.whileOpenMu.RUnlock()
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
	if a.ownerProcess != nil {
		ok = false // Events belong to the process.
		a.ownerProcess.removeStream(a)
	}
	if ok {
		events.OnEvent(nil)
	}
	a.upcalls.Lock()
	a.upcalls.isClosing = true
	close(a.upcalls.closeSignal)
	a.upcalls.Unlock()
	a.upcalls.runningGoroutines.Wait()
	a.closing.whileOpenMu.Lock()
	a.closing.isFreed = true
	a.closing.whileOpenMu.Unlock()
	err := a.Stack.Close()
	if ok {
		events.EndIncarnation()
	}
	if a.ownerProcess == nil && a.options.Client == nil {
		err = errors.Join(err, a.client.Close())
	}
	return err
}
