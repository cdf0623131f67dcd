package watch

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// openPage opens a page with bounds, and closes it with the test.
func openPage(t *testing.T, b bounds) *Page {
	t.Helper()
	p, err := open(b)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// newClient returns a client that shares no connections with others.
func newClient(t *testing.T) *http.Client {
	t.Helper()
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: patience}
}

// readState returns the state of the job, as a browser polls it.
func readState(t *testing.T, c *http.Client, p *Page, after int64) (s state) {
	t.Helper()
	r, err := c.Get(fmt.Sprintf("%sstate?after=%d", p.URL(), after))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if err := json.NewDecoder(r.Body).Decode(&s); err != nil || r.StatusCode != 200 {
		t.Fatalf("%s: %v", r.Status, err)
	}
	return s
}

func TestPage_OtherPathHostOrMethod_IsRefused(t *testing.T) {
	p, c := openPage(t, defaultBounds), newClient(t)
	root := "http://" + p.listener.Addr().String()
	for _, x := range []struct {
		method, url, host string
		want              int
	}{
		{"GET", p.URL(), "", 200},
		{"GET", p.URL() + "state", "", 200},
		{"GET", p.URL() + "state?after=x", "", 200},
		{"GET", p.URL() + "other", "", 404},
		{"GET", p.URL() + "state/", "", 404},
		{"GET", p.URL() + "%73tate", "", 404},
		{"GET", strings.TrimSuffix(p.URL(), "/"), "", 404},
		{"GET", root + "/" + p.pathSecret[:31] + "/", "", 404},
		{"GET", root + "//" + p.pathSecret + "/", "", 404},
		{"GET", root + "/", "", 404},
		{"POST", root + "/", "", 404},
		{"GET", p.URL(), "example.org", 403},
		{"GET", p.URL(), "localhost" + p.listener.Addr().String()[len("127.0.0.1"):], 403},
		{"GET", root + "/", "127.0.0.1", 403},
		{"POST", p.URL(), "", 405},
		{"HEAD", p.URL(), "", 405},
		{"OPTIONS", p.URL() + "state", "", 405},
		{"DELETE", p.URL() + "state", "", 405},
	} {
		req, err := http.NewRequest(x.method, x.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = x.host
		r, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(r.Body)
		r.Body.Close()
		if r.StatusCode != x.want {
			t.Errorf("%s %s of host %q: %s, want %d", x.method, x.url, x.host, r.Status, x.want)
		}
		if x.want != 200 && strings.Contains(string(body), p.pathSecret) {
			t.Errorf("%s %s: the answer has the path of the page: %s", x.method, x.url, body)
		}
		for _, header := range []string{"Content-Security-Policy", "Referrer-Policy", "X-Content-Type-Options", "Cache-Control"} {
			if r.Header.Get(header) == "" {
				t.Errorf("%s %s: no header %s", x.method, x.url, header)
			}
		}
	}
}

func TestPage_Text_IsOneFileWithoutOtherSources(t *testing.T) {
	p := openPage(t, defaultBounds)
	r, err := newClient(t).Get(p.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"<style>" + pageCSS + "</style>", "<script>" + pageJS + "</script>"} {
		if !strings.Contains(string(body), part) {
			t.Errorf("the page lacks %.40q", part)
		}
	}
	for _, source := range []string{" src=", "http://127", "https:", "@import", "url(h"} {
		if strings.Contains(string(body), source) {
			t.Errorf("the page has %q", source)
		}
	}
	if policy := r.Header.Get("Content-Security-Policy"); !strings.Contains(policy, hash(pageJS)) || !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
		t.Errorf("policy %s", policy)
	}
}

func TestPage_ClientThatDoesNotRead_IsDropped(t *testing.T) {
	b := defaultBounds
	b.clientTimeout = 300 * time.Millisecond
	p := openPage(t, b)
	dialer := net.Dialer{Control: func(_, _ string, c syscall.RawConn) (err error) {
		controlErr := c.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) })
		if controlErr != nil {
			err = controlErr
		}
		return err
	}}
	conn, err := dialer.DialContext(t.Context(), "tcp", p.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// Requests in a row fill the buffers of both ends, until the write of a response blocks.
	request := []byte("GET /" + p.pathSecret + "/ HTTP/1.1\r\nHost: " + p.listener.Addr().String() + "\r\n\r\n")
	conn.SetDeadline(time.Now().Add(patience))
	for err == nil {
		_, err = conn.Write(request)
	}
	if e, ok := err.(net.Error); ok && e.Timeout() {
		t.Fatalf("the client is not dropped: %v", err)
	}
	await(t, "the end of the connection", func() bool { return p.clients.count() == 0 })
	readState(t, newClient(t), p, 0)
}

func TestPage_SilentClients_AreDroppedForOthers(t *testing.T) {
	b := defaultBounds
	b.maxConnections, b.maxClients = 4, 2
	p := openPage(t, b)
	viewer := newClient(t)
	readState(t, viewer, p, 0)
	var silent []net.Conn
	for range 20 {
		c, err := net.Dial("tcp", p.listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		silent = append(silent, c)
	}
	readState(t, newClient(t), p, 0) // A new viewer is behind the silent ones.
	readState(t, viewer, p, 0)
	silent[0].SetReadDeadline(time.Now().Add(patience))
	if _, err := silent[0].Read(make([]byte, 1)); err == nil || isTimeout(err) {
		t.Errorf("the oldest silent client: %v", err)
	}
	if n := p.clients.count(); n > b.maxConnections {
		t.Errorf("%d connections are open", n)
	}
}

func isTimeout(err error) bool {
	e, ok := err.(net.Error)
	return ok && e.Timeout()
}

func TestPage_ThousandClients_OthersGet503(t *testing.T) {
	p := openPage(t, defaultBounds)
	viewer := newClient(t)
	readState(t, viewer, p, 0)
	var served, refused, dropped atomic.Int64
	var all sync.WaitGroup
	release := make(chan struct{})
	conns := make(chan net.Conn, 1000)
	for range 1000 {
		all.Go(func() {
			c, err := net.Dial("tcp", p.listener.Addr().String())
			if err != nil {
				dropped.Add(1)
				return
			}
			conns <- c
			c.SetDeadline(time.Now().Add(patience))
			fmt.Fprintf(c, "GET /%s/state HTTP/1.1\r\nHost: %s\r\n\r\n", p.pathSecret, p.listener.Addr())
			r, err := http.ReadResponse(bufio.NewReader(c), nil)
			switch {
			case err != nil:
				dropped.Add(1)
			case r.StatusCode == http.StatusServiceUnavailable && r.Header.Get("Retry-After") != "":
				refused.Add(1)
			case r.StatusCode == http.StatusOK:
				served.Add(1)
			default:
				t.Error(r.Status)
			}
			<-release // The connection stays open.
		})
	}
	await(t, "all clients", func() bool { return served.Load()+refused.Load()+dropped.Load() == 1000 })
	readState(t, viewer, p, 0)
	close(release)
	all.Wait()
	close(conns)
	for c := range conns {
		c.Close()
	}
	t.Logf("%d clients served, %d refused with status 503, %d dropped", served.Load(), refused.Load(), dropped.Load())
	if served.Load() > int64(defaultBounds.maxClients) || refused.Load() < 500 {
		t.Error("want at most 64 served, and most others refused with status 503")
	}
	await(t, "room for others", func() bool { return p.clients.count() <= 1 })
	readState(t, newClient(t), p, 0)
}

// count returns the number of open connections.
func (t *clientTable) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.openClients)
}

// TestClients_DroppedDuringFirstRequest_IsNoViewer has a request that is read before its connection is dropped for another one.
func TestClients_DroppedDuringFirstRequest_IsNoViewer(t *testing.T) {
	var table clientTable
	table.init(bounds{maxClients: 1, maxConnections: 1})
	first, other := net.Pipe()
	defer first.Close()
	defer other.Close()
	dropped := table.admit(t.Context(), first)
	present := table.admit(t.Context(), other)
	if table.accept(dropped) || !table.accept(present) {
		t.Error("a dropped client is a viewer in place of the present one")
	}
	table.follow(other, http.StateClosed)
	if table.viewerCount != 0 || table.count() != 0 {
		t.Errorf("%d viewers in %d connections remain", table.viewerCount, table.count())
	}
}
