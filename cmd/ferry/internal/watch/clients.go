package watch

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// admitPatience is the time for which a new connection waits for the end of another one.
const admitPatience = 20 * time.Millisecond

// clientTable has the open connections of a page. A connection is a viewer from its first valid request on.
type clientTable struct {
	bounds bounds

	mu sync.Mutex
	// The oldest first.
	openClients []*client
	viewerCount int
	// Has room for one end.
	connEnded chan struct{}
}

type client struct {
	conn     net.Conn
	isViewer bool
	// It has left the table. Its last request may still run.
	isRemoved bool
}

// clientKey is the key of a connection's client in the context of its requests.
type clientKey struct{}

func (t *clientTable) init(b bounds) { t.bounds, t.connEnded = b, make(chan struct{}, 1) }

// admit adds a connection. If there are too many, it waits briefly for one to end, and then drops the oldest one that is not a viewer.
func (t *clientTable) admit(ctx context.Context, conn net.Conn) context.Context {
	c := &client{conn: conn}
	t.mu.Lock()
	defer t.mu.Unlock()
	for deadline := time.After(admitPatience); len(t.openClients) >= t.bounds.maxConnections; {
		t.mu.Unlock()
		isLate := false
		select {
		case <-t.connEnded:
		case <-deadline:
			isLate = true
		}
		t.mu.Lock()
		if isLate {
			t.dropOldest()
			break
		}
	}
	t.openClients = append(t.openClients, c)
	return context.WithValue(ctx, clientKey{}, c)
}

// dropOldest ends the oldest connection that is not a viewer. mu is locked.
func (t *clientTable) dropOldest() {
	for i, c := range t.openClients {
		if !c.isViewer {
			t.removeAt(i)
			c.conn.Close()
			return
		}
	}
}

func (t *clientTable) removeAt(i int) {
	if t.openClients[i].isViewer {
		t.viewerCount--
	}
	t.openClients[i].isRemoved = true
	t.openClients = append(t.openClients[:i], t.openClients[i+1:]...)
}

// follow removes a connection that has ended.
func (t *clientTable) follow(conn net.Conn, state http.ConnState) {
	if state != http.StateClosed && state != http.StateHijacked {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, c := range t.openClients {
		if c.conn == conn {
			t.removeAt(i)
			break
		}
	}
	select {
	case t.connEnded <- struct{}{}:
	default:
	}
}

// accept reports whether the client of a valid request is served.
func (t *clientTable) accept(ctx context.Context) bool {
	c := ctx.Value(clientKey{}).(*client)
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.isRemoved {
		return false
	}
	if !c.isViewer && t.viewerCount < t.bounds.maxClients {
		c.isViewer = true
		t.viewerCount++
	}
	return c.isViewer
}
