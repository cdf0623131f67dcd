// Package watch serves the page of `ferry run --watch`. The page shows the ranks, traffic, process sets and changes of a running
// job in a browser.
//
// A Page is the launch.Observer of one job. It keeps the latest changes. While a browser polls the page, it requests the counts of messages
// from the ranks, at most once per second. Its only goroutines are those of its connections and of their listener.
//
// The page listens on 127.0.0.1 only. Other users of the machine can connect, so that a path of 128 random bits is the proof of a
// viewer. Clients cannot change the job. A Page bounds their number, their descriptors and the time of each request, so that they cannot
// disturb it (docs/security.md).
package watch

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/ferrympi/ferry/bootstrap/local/server"
	"github.com/ferrympi/ferry/cmd/ferry/internal/launch"
)

// bounds limit the clients of a page.
type bounds struct {
	// Further clients get status 503.
	maxClients int
	// The oldest connection without a valid request is dropped for another one.
	maxConnections int
	// For a request to arrive, for its response to be read, and until the next request.
	clientTimeout time.Duration
}

var defaultBounds = bounds{maxClients: 64, maxConnections: 128, clientTimeout: 10 * time.Second}

// A Page shows one job. Open makes one, and Close ends it.
type Page struct {
	pathSecret string
	listener   net.Listener
	server     *http.Server
	serveDone  chan struct{}
	clients    clientTable

	// Tests replace it.
	currentTime func() time.Time
	startedAt   time.Time

	mu sync.Mutex
	// nil before the job begins.
	liveJob     job
	commandLine string
	// Of a divided job, else 0 or 1.
	nodeCount int
	history   history
	traffic   traffic
}

// job is the source of a page's content (launch.Live).
type job interface {
	IsEnding() bool
	Snapshot(mostPsets int) server.Snapshot
	RequestTraffic() (ranks []int)
}

var _ launch.Observer = (*Page)(nil)

// Open listens on a free port, and serves the page of a job that has not begun.
func Open() (*Page, error) { return open(defaultBounds) }

func open(b bounds) (*Page, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("page of the job: %w; run it without --watch", err)
	}
	var secret [16]byte
	rand.Read(secret[:])
	p := &Page{pathSecret: hex.EncodeToString(secret[:]), listener: l, serveDone: make(chan struct{}), currentTime: time.Now, startedAt: time.Now()}
	p.clients.init(b)
	p.server = p.makeServer(b)
	go func() {
		defer close(p.serveDone)
		_ = p.server.Serve(l) // It returns at Close.
	}()
	return p, nil
}

// URL returns the address of the page.
func (p *Page) URL() string { return fmt.Sprintf("http://%s/%s/", p.listener.Addr(), p.pathSecret) }

// Close ends all connections. A second Close has no effect.
func (p *Page) Close() error {
	err := p.server.Close()
	<-p.serveDone
	return err
}

// Begin implements launch.Observer.
func (p *Page) Begin(live launch.Live) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.liveJob, p.commandLine, p.nodeCount = live, live.CommandLine, live.NodeCount
}

// ObservePset implements launch.Observer.
func (p *Page) ObservePset(ev server.PsetEvent) { p.record(psetChange(ev)) }

// ObserveProc implements launch.Observer.
func (p *Page) ObserveProc(ev server.ProcEvent) {
	if ev.State == server.ProcOpen {
		p.mu.Lock()
		p.traffic.forget(ev.Rank)
		p.mu.Unlock()
	}
	p.record(procChange(ev))
}

func (p *Page) record(c change) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.AtMillis = p.currentTime().Sub(p.startedAt).Milliseconds()
	p.history.add(c)
}

// ObserveTraffic implements launch.Observer.
func (p *Page) ObserveTraffic(rank int, body []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.traffic.add(rank, body, p.currentTime())
}

// requestTraffic requests the counts of all ranks if the last request was a second ago.
func (p *Page) requestTraffic(j job) {
	p.mu.Lock()
	isDue := p.traffic.begin(p.currentTime())
	p.mu.Unlock()
	if !isDue {
		return
	}
	asked := j.RequestTraffic() // The server's lock precedes p.mu.
	p.mu.Lock()
	defer p.mu.Unlock()
	p.traffic.expect(asked)
}
