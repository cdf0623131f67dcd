package report

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ferrympi/ferry/internal/needs"
)

// patience is how long the browser may take for one thing.
const patience = 60 * time.Second

// browser is a headless Chromium that is driven over a pair of pipes, by the
// protocol of its developer tools. It has one tab. When the pipes close it ends.
type browser struct {
	t       *testing.T
	session string // of the tab
	to      *os.File

	mu      sync.Mutex
	last    int
	waits   map[int]chan reply
	events  []event
	arrived chan struct{} // Has room for one event since the last read.
	ended   chan struct{}
}

type reply struct {
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
}

type event struct {
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

// noBus matches repeated messages of Chromium without a desktop.
var noBus = regexp.MustCompile(`(?m)^.*ERROR:dbus.*\n`)

// startBrowser starts Chromium, and ends it with the test, without remaining processes,
// files or memory in /dev/shm.
func startBrowser(t *testing.T) *browser {
	t.Helper()
	path := needs.Program(t, "chromium", "chromium")
	dir := t.TempDir()
	hear, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, say, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd := exec.Command(path, "--headless", "--remote-debugging-pipe", "--user-data-dir="+dir,
		"--no-sandbox",            // It reads local files only, and root cannot have a sandbox.
		"--disable-dev-shm-usage", // its memory is not left in /dev/shm when it is killed
		"--disable-gpu", "--no-first-run", "--disable-breakpad", "--disable-background-networking", "--disable-component-update", "--disable-sync",
		"--force-color-profile=srgb", "--hide-scrollbars", "about:blank")
	cmd.Env = append(os.Environ(), "HOME="+dir, "TMPDIR="+dir, "XDG_CONFIG_HOME="+dir, "XDG_CACHE_HOME="+dir)
	cmd.ExtraFiles = []*os.File{hear, say} // it reads 3 and writes 4
	cmd.Stderr = &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	hear.Close()
	say.Close()
	b := &browser{t: t, to: to, waits: map[int]chan reply{}, arrived: make(chan struct{}, 1), ended: make(chan struct{})}
	go b.read(from)
	t.Cleanup(func() {
		b.send("", 0, "Browser.close", nil)
		select {
		case <-b.ended:
		case <-time.After(patience):
			t.Error("chromium does not end when it is asked to")
		}
		to.Close()
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // The rest of the group.
		cmd.Wait()
		from.Close()
		allGone(t, dir)
		if t.Failed() {
			t.Logf("chromium wrote: %s", noBus.ReplaceAllString(stderr.String(), ""))
		}
	})
	target := call[struct{ TargetID string }](b, "", "Target.createTarget", map[string]any{"url": "about:blank"}).TargetID
	b.session = call[struct{ SessionID string }](b, "", "Target.attachToTarget", map[string]any{"targetId": target, "flatten": true}).SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Network", "Accessibility", "DOM"} {
		b.do(domain+".enable", nil)
	}
	return b
}

// allGone reports processes that still use the browser's directory. Those that were
// killed take a moment to go.
func allGone(t *testing.T, dir string) {
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		var who []string
		files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, f := range files {
			if line, err := os.ReadFile(f); err == nil && bytes.Contains(line, []byte(dir)) {
				who = append(who, strings.ReplaceAll(string(line), "\x00", " "))
			}
		}
		if len(who) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Errorf("left of chromium: %q", who)
			return
		}
	}
}

// read takes replies and events apart until the browser closes its end.
func (b *browser) read(from *os.File) {
	defer close(b.ended)
	for r := bufio.NewReader(from); ; {
		line, err := r.ReadBytes(0)
		if err != nil {
			return
		}
		var m struct {
			ID        int
			SessionID string
			reply
			event
		}
		if json.Unmarshal(bytes.TrimSuffix(line, []byte{0}), &m) != nil {
			return // The waiting calls report it.
		}
		b.mu.Lock()
		if m.ID != 0 {
			if c := b.waits[m.ID]; c != nil {
				c <- m.reply
				delete(b.waits, m.ID)
			}
		} else if m.SessionID != "" {
			b.events = append(b.events, m.event)
		}
		b.mu.Unlock()
		select {
		case b.arrived <- struct{}{}:
		default:
		}
	}
}

func (b *browser) send(session string, id int, method string, params any) error {
	m := map[string]any{"id": id, "method": method}
	if session != "" {
		m["sessionId"] = session
	}
	if params != nil {
		m["params"] = params
	}
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	_, err = b.to.Write(append(text, 0))
	return err
}

// ask sends a command and waits for its reply.
func (b *browser) ask(session, method string, params any) (json.RawMessage, error) {
	c := make(chan reply, 1)
	b.mu.Lock()
	b.last++
	id := b.last
	b.waits[id] = c
	b.mu.Unlock()
	if err := b.send(session, id, method, params); err != nil {
		return nil, err
	}
	select {
	case r := <-c:
		if r.Error != nil {
			return nil, errors.New(r.Error.Message)
		}
		return r.Result, nil
	case <-b.ended:
		return nil, errors.New("chromium has ended")
	case <-time.After(patience):
		return nil, fmt.Errorf("no reply within %v", patience)
	}
}

// call is ask with a result of type T; an error ends the test.
func call[T any](b *browser, session, method string, params any) T {
	b.t.Helper()
	var result T
	raw, err := b.ask(session, method, params)
	if err == nil {
		err = json.Unmarshal(raw, &result)
	}
	if err != nil {
		b.t.Fatalf("chromium: %s: %v", method, err)
	}
	return result
}

// do executes a command in the tab and ignores its result.
func (b *browser) do(method string, params map[string]any) {
	b.t.Helper()
	call[struct{}](b, b.session, method, params)
}

// open shows a file, and forgets the events of before.
func (b *browser) open(file string) {
	b.t.Helper()
	path, err := filepath.Abs(file)
	if err != nil {
		b.t.Fatal(err)
	}
	b.mu.Lock()
	b.events = nil
	b.mu.Unlock()
	b.do("Page.navigate", map[string]any{"url": "file://" + path})
	b.await("Page.loadEventFired")
}

// await waits for an event that has not come since the page was opened.
func (b *browser) await(method string) {
	b.t.Helper()
	end := time.After(patience)
	for {
		for _, e := range b.receivedEvents() {
			if e.Method == method {
				return
			}
		}
		select {
		case <-b.arrived:
		case <-end:
			b.t.Fatalf("chromium: no %s within %v", method, patience)
		}
	}
}

// receivedEvents returns the events of the tab since the page was opened.
func (b *browser) receivedEvents() []event {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]event{}, b.events...)
}

// eval returns the value of a JavaScript expression, awaited if it is a promise.
func eval[T any](b *browser, expression string) T {
	b.t.Helper()
	r := call[struct {
		Result           struct{ Value T }
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}](b, b.session, "Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true, "userGesture": true})
	if e := r.ExceptionDetails; e != nil {
		b.t.Fatalf("%s: %s %s", expression, e.Text, e.Exception.Description)
	}
	return r.Result.Value
}

// click presses the mouse in the middle of the first element that a selector finds.
func (b *browser) click(selector string) {
	b.t.Helper()
	at := eval[[]float64](b, fmt.Sprintf(`(() => {
		const e = document.querySelector(%q);
		e.scrollIntoView({block: "center"});
		const r = e.getBoundingClientRect();
		return [r.x + r.width / 2, r.y + r.height / 2];
	})()`, selector))
	for _, kind := range []string{"mousePressed", "mouseReleased"} {
		b.do("Input.dispatchMouseEvent", map[string]any{"type": kind, "x": at[0], "y": at[1], "button": "left", "clickCount": 1})
	}
}

// until waits until a JavaScript expression is true, or for a time limit. Later checks then
// fail.
func (b *browser) until(expression string) {
	b.t.Helper()
	eval[bool](b, fmt.Sprintf(`new Promise(resolve => {
		const end = performance.now() + 60000;
		const look = () => (%s) || performance.now() > end ? resolve(true) : setTimeout(look, 5);
		look();
	})`, expression))
}

// key presses a key.
func (b *browser) key(name string, code int, text string) {
	b.t.Helper()
	for _, kind := range []string{"keyDown", "keyUp"} {
		p := map[string]any{"type": kind, "key": name, "code": name, "windowsVirtualKeyCode": code}
		if kind == "keyDown" && text != "" {
			p["text"] = text
		}
		b.do("Input.dispatchKeyEvent", p)
	}
}

// media emulates another medium or colour scheme; empty strings are as it came.
func (b *browser) media(medium, scheme string) {
	b.t.Helper()
	b.do("Emulation.setEmulatedMedia", map[string]any{"media": medium, "features": []map[string]any{{"name": "prefers-color-scheme", "value": scheme}}})
}
