// Package browsertest drives a headless Chromium in tests of pages. A Browser belongs to one test. Its methods end the test on
// an error, and each waits for the browser for at most a minute. Without Chromium the test is skipped, or fails where package needs
// requires the program.
package browsertest

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

// patience is the time limit of a reply or an event.
const patience = 60 * time.Second

// Browser is a headless Chromium that is driven over a pair of pipes, by the
// protocol of its developer tools. It has one tab. When the pipes close it ends.
type Browser struct {
	t *testing.T
	// Session of the tab.
	session string
	to      *os.File

	mu      sync.Mutex
	lastID  int
	replies map[int]chan reply
	events  []Event
	// Has room for one event since the last read.
	arrived chan struct{}
	ended   chan struct{}
}

type reply struct {
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// Event is an event of the tab.
type Event struct {
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

// noBus matches repeated messages of Chromium without a desktop.
var noBus = regexp.MustCompile(`(?m)^.*ERROR:dbus.*\n`)

// Start starts Chromium, and ends it with the test, without remaining processes,
// files or memory in /dev/shm.
func Start(t *testing.T) *Browser {
	t.Helper()
	path := needs.Program(t, "chromium", "chromium")
	dir, err := os.MkdirTemp("", "browser") // The path of a socket there must be short, other than t.TempDir's.
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	commands, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, replies, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd := exec.Command(path, "--headless", "--remote-debugging-pipe", "--user-data-dir="+dir,
		"--no-sandbox",            // It shows pages of the test only, and root cannot have a sandbox.
		"--disable-dev-shm-usage", // A killed browser then leaves no memory in /dev/shm.
		"--disable-gpu", "--no-first-run", "--disable-breakpad", "--disable-background-networking", "--disable-component-update", "--disable-sync",
		"--force-color-profile=srgb", "--hide-scrollbars", "about:blank")
	cmd.Env = append(os.Environ(), "HOME="+dir, "TMPDIR="+dir, "XDG_CONFIG_HOME="+dir, "XDG_CACHE_HOME="+dir)
	cmd.ExtraFiles = []*os.File{commands, replies} // It reads descriptor 3, and writes to 4.
	cmd.Stderr = &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	commands.Close()
	replies.Close()
	b := &Browser{t: t, to: to, replies: map[int]chan reply{}, arrived: make(chan struct{}, 1), ended: make(chan struct{})}
	go b.read(from)
	t.Cleanup(func() {
		b.send("", 0, "Browser.close", nil)
		select {
		case <-b.ended:
		case <-time.After(patience):
			t.Error("chromium does not end after Browser.close")
		}
		to.Close()
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // The rest of the group.
		cmd.Wait()
		from.Close()
		checkEnded(t, dir)
		if t.Failed() {
			t.Logf("chromium wrote: %s", noBus.ReplaceAllString(stderr.String(), ""))
		}
	})
	target := call[struct{ TargetID string }](b, "", "Target.createTarget", map[string]any{"url": "about:blank"}).TargetID
	b.session = call[struct{ SessionID string }](b, "", "Target.attachToTarget", map[string]any{"targetId": target, "flatten": true}).SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Network", "Accessibility", "DOM"} {
		b.Do(domain+".enable", nil)
	}
	return b
}

// checkEnded reports processes that still use the browser's directory. A killed process takes a moment to end.
func checkEnded(t *testing.T, dir string) {
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		var commandLines []string
		files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, f := range files {
			if line, err := os.ReadFile(f); err == nil && bytes.Contains(line, []byte(dir)) {
				commandLines = append(commandLines, strings.ReplaceAll(string(line), "\x00", " "))
			}
		}
		if len(commandLines) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Errorf("remaining processes of chromium: %q", commandLines)
			return
		}
	}
}

// read takes replies and events apart until the browser closes its end.
func (b *Browser) read(from *os.File) {
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
			Event
		}
		if json.Unmarshal(bytes.TrimSuffix(line, []byte{0}), &m) != nil {
			return // The waiting calls report it.
		}
		b.mu.Lock()
		if m.ID != 0 {
			if c := b.replies[m.ID]; c != nil {
				c <- m.reply
				delete(b.replies, m.ID)
			}
		} else if m.SessionID != "" {
			b.events = append(b.events, m.Event)
		}
		b.mu.Unlock()
		select {
		case b.arrived <- struct{}{}:
		default:
		}
	}
}

func (b *Browser) send(session string, id int, method string, params any) error {
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
func (b *Browser) ask(session, method string, params any) (json.RawMessage, error) {
	c := make(chan reply, 1)
	b.mu.Lock()
	b.lastID++
	id := b.lastID
	b.replies[id] = c
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

// Call executes a command in the tab, and returns its result.
func Call[T any](b *Browser, method string, params any) T {
	b.t.Helper()
	return call[T](b, b.session, method, params)
}

// CallBrowser executes a command of the browser itself, outside of the tab.
func CallBrowser[T any](b *Browser, method string, params any) T {
	b.t.Helper()
	return call[T](b, "", method, params)
}

// call is ask with a result of type T. An error ends the test.
func call[T any](b *Browser, session, method string, params any) T {
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

// Do executes a command in the tab and ignores its result.
func (b *Browser) Do(method string, params map[string]any) {
	b.t.Helper()
	call[struct{}](b, b.session, method, params)
}

// OpenFile shows a file; see Open.
func (b *Browser) OpenFile(file string) {
	b.t.Helper()
	path, err := filepath.Abs(file)
	if err != nil {
		b.t.Fatal(err)
	}
	b.Open("file://" + path)
}

// Open shows the page of a URL, and drops earlier events.
func (b *Browser) Open(url string) {
	b.t.Helper()
	b.mu.Lock()
	b.events = nil
	b.mu.Unlock()
	b.Do("Page.navigate", map[string]any{"url": url})
	b.await("Page.loadEventFired")
}

// await waits for an event that has not come since the page was opened.
func (b *Browser) await(method string) {
	b.t.Helper()
	end := time.After(patience)
	for {
		for _, e := range b.Events() {
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

// Events returns the events of the tab since the page was opened.
func (b *Browser) Events() []Event {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]Event{}, b.events...)
}

// Eval returns the value of a JavaScript expression, awaited if it is a promise.
func Eval[T any](b *Browser, expression string) T {
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

// Click presses the mouse in the middle of the first element that a selector finds.
func (b *Browser) Click(selector string) {
	b.t.Helper()
	at := Eval[[]float64](b, fmt.Sprintf(`(() => {
		const e = document.querySelector(%q);
		e.scrollIntoView({block: "center"});
		const r = e.getBoundingClientRect();
		return [r.x + r.width / 2, r.y + r.height / 2];
	})()`, selector))
	for _, kind := range []string{"mousePressed", "mouseReleased"} {
		b.Do("Input.dispatchMouseEvent", map[string]any{"type": kind, "x": at[0], "y": at[1], "button": "left", "clickCount": 1})
	}
}

// Until waits until a JavaScript expression is true, or for a time limit. Later checks then
// fail.
func (b *Browser) Until(expression string) {
	b.t.Helper()
	Eval[bool](b, fmt.Sprintf(`new Promise(resolve => {
		const end = performance.now() + 60000;
		const poll = () => (%s) || performance.now() > end ? resolve(true) : setTimeout(poll, 5);
		poll();
	})`, expression))
}

// Press presses a key with a virtual key code, and types text.
func (b *Browser) Press(name string, code int, text string) {
	b.t.Helper()
	for _, kind := range []string{"keyDown", "keyUp"} {
		p := map[string]any{"type": kind, "key": name, "code": name, "windowsVirtualKeyCode": code}
		if kind == "keyDown" && text != "" {
			p["text"] = text
		}
		b.Do("Input.dispatchKeyEvent", p)
	}
}

// EmulateMedia emulates a medium and a color scheme. Empty strings are the defaults.
func (b *Browser) EmulateMedia(medium, scheme string) {
	b.t.Helper()
	b.Do("Emulation.setEmulatedMedia", map[string]any{"media": medium, "features": []map[string]any{{"name": "prefers-color-scheme", "value": scheme}}})
}
