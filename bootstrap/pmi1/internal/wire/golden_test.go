package wire

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestClient_GoldenDialogues replays the scripts in testdata. A script has calls, the lines of the
// client (>) and of the server (<), and results (=). "<+" is text without an end, and "< close"
// the end of the connection. Consecutive lines of the server are sent in one piece. LONG stands for
// 2,500 bytes.
func TestClient_GoldenDialogues(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		script, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		// An empty line separates dialogues. Each has a connection of its own.
		for i, dialogue := range strings.Split(string(script), "\n\n") {
			t.Run(fmt.Sprintf("%s/%d", strings.TrimSuffix(filepath.Base(file), ".txt"), i+1), func(t *testing.T) { replay(t, dialogue) })
		}
	}
}

var long = strings.Repeat("0123456789", 250)

func replay(t *testing.T, dialogue string) {
	ours, theirs := net.Pipe()
	defer theirs.Close()
	c := New(ours, time.Minute, func(error) {})
	defer c.Close()
	said := make(chan string)
	finished := make(chan struct{})
	go serve(t, theirs, said, finished)

	var call, outcome string
	flush := func() {
		if call == "" {
			return
		}
		if got := do(t, c, call); got != outcome {
			t.Errorf("%s:\n got %s\nwant %s", call, got, outcome)
		}
		call = ""
	}
	for line := range strings.Lines(strings.ReplaceAll(dialogue, "LONG", long)) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '>' || line[0] == '<':
			said <- line
		case line[0] == '=':
			outcome = line[2:]
			said <- "=" // The end of the script.
			flush()
		default:
			call = line
		}
	}
	close(said)
	c.Close()
	<-finished
}

// serve plays the server. It collects a part of the script up to an outcome, and plays that.
func serve(t *testing.T, conn net.Conn, said <-chan string, finished chan<- struct{}) {
	defer close(finished)
	r := bufio.NewReader(conn)
	var part []string
	for s := range said {
		if s != "=" {
			part = append(part, s)
			continue
		}
		if !play(t, conn, r, part) {
			for range said { // The client sends less than the script.
			}
			return
		}
		part = nil
	}
}

func play(t *testing.T, conn net.Conn, r *bufio.Reader, part []string) bool {
	answer := ""
	for _, s := range append(part, ">") {
		what, text, _ := strings.Cut(s, " ")
		switch {
		case what == ">":
			if answer != "" {
				conn.Write([]byte(answer)) // The client may have closed.
				answer = ""
			}
			if text == "" {
				return true
			}
			got, err := r.ReadString('\n')
			if err != nil || got != text+"\n" {
				t.Errorf("the client says %q, %v, and not %q", got, err, text)
				conn.Close()
				return false
			}
		case text == "close":
			conn.Write([]byte(answer))
			conn.Close()
			return false
		case what == "<+":
			answer += text
		default:
			answer += text + "\n"
		}
	}
	return true
}

// do makes the call of a script, and formats its result.
func do(t *testing.T, c *Client, call string) string {
	t.Helper()
	f := strings.Fields(call)
	arg := func(i int) string {
		if i < len(f) {
			return f[i]
		}
		return ""
	}
	num := func(i int) int {
		n, err := strconv.Atoi(arg(i))
		if err != nil {
			t.Fatalf("%s: %v", call, err)
		}
		return n
	}
	found := func(text string, ok bool, err error) (string, error) {
		if !ok {
			text = "nothing"
		}
		return text, err
	}
	result, err := "done", error(nil)
	ctx := t.Context()
	switch f[0] {
	case "who":
		var rank, size int
		rank, size, err = c.Identify(ctx, num(1))
		result = fmt.Sprintf("rank %d of %d", rank, size)
	case "init":
		err = c.Init(ctx)
		m := c.Limits()
		result = fmt.Sprintf("%s groups:%t %d %d %d", c.KVSName(), c.HasGroups(), m.KVSName, m.Key, m.Value)
	case "put":
		err = c.Put(ctx, arg(1), arg(2))
	case "get":
		result, err = found(c.Get(ctx, arg(1)))
	case "barrier":
		err = c.Barrier(ctx, arg(1))
	case "publish":
		err = c.Publish(ctx, arg(1), arg(2))
	case "lookup":
		result, err = found(c.Lookup(ctx, arg(1)))
	case "unpublish":
		err = c.Unpublish(ctx, arg(1))
	case "spawn": // The arguments are after the program. ~ stands for a space, and "" for an empty text.
		s := SpawnRequest{N: num(1), Dir: arg(2), Key: "hand-over", Text: arg(3), Program: arg(4)}
		for _, a := range f[min(5, len(f)):] {
			s.Args = append(s.Args, strings.Trim(strings.ReplaceAll(a, "~", " "), `"`))
		}
		err = c.Spawn(ctx, s)
	case "finalize":
		err = c.Finalize(ctx)
	case "abort":
		err = c.Abort(ctx, num(1))
	default:
		t.Fatalf("a script calls %q", call)
	}
	if err != nil {
		return "error: " + err.Error()
	}
	return result
}
