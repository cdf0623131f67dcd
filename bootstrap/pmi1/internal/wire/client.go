package wire

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/ferrympi/ferry/framework"
)

// A Client is the process's one conversation with its PMI-1 server. Its methods may be
// called concurrently; they take turns. The first answer that does not come, or makes
// no sense, ends it: every call from then on returns that error, because nobody can
// tell any more which answer belongs to which request.
//
// Errors: *framework.TransportError, which quotes the server's line where there is
// one, and wraps framework.ErrTimeout if there was none in time; a *RefusedError in it for
// a request that the server did not do; the cause of ctx when that ended.
// A call whose ctx ends leaves its request under way: the next one waits for that.
type Client struct {
	conn      net.Conn
	timeout   time.Duration
	onLost    func(error)
	turnToken chan struct{}    // holds a token while nobody speaks
	answers   chan lineOrError // those that answer a request; has room for all of them
	wg        sync.WaitGroup

	subversion int    // set by Init
	limits     Limits // set by Init
	kvsName    string // set by Init

	mu          sync.Mutex
	linesWanted int   // lines that the request under way still gets
	readErr     error // why there will be no more lines
	isLeaving   bool  // the end is this process's own wish
	closeErr    error // why it is over
}

// received is a line, or why there will be no more.
type lineOrError struct {
	line Line
	err  error
}

// maxLines is the most that answer one request.
const maxLines = 4

// New returns a client on conn, which becomes its own. Each answer has timeout to come.
// lost is called, once and from a goroutine of the client's, if the server ends the
// connection while nobody has asked for that; it must not call the client.
func New(conn net.Conn, timeout time.Duration, lost func(error)) *Client {
	c := &Client{conn: conn, timeout: timeout, onLost: lost, turnToken: make(chan struct{}, 1), answers: make(chan lineOrError, maxLines+1)}
	c.turnToken <- struct{}{}
	c.wg.Go(c.read)
	return c
}

// read hands lines to the request that is under way, until the connection ends or makes
// no sense. A line that nobody has asked for is the end too: whose answer is the next?
func (c *Client) read() {
	r := bufio.NewReaderSize(c.conn, MaxLine)
	for {
		text, err := r.ReadSlice('\n')
		gone := err != nil && !errors.Is(err, bufio.ErrBufferFull)
		line, err := parseRead(text, err)
		behind, _ := r.Peek(r.Buffered())
		asked, quiet := c.acceptLine(line, err, string(behind))
		if asked {
			c.answers <- lineOrError{line, err}
		}
		if gone && !quiet {
			c.onLost(err)
		}
		if !asked || err != nil {
			return
		}
	}
}

// acceptLine notes what read has got, and what came in one piece with it. It reports whether
// there is a request to which the line goes, and whether an end is no news.
func (c *Client) acceptLine(line Line, err error, behind string) (asked, quiet bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if asked = c.linesWanted > 0; asked && err == nil {
		// Before the line is handed on: the next request must not find want at 0.
		if c.linesWanted--; c.linesWanted > 0 || behind == "" {
			return asked, c.isLeaving
		}
		err = unrequestedError(behind)
	} else if err == nil {
		err = unrequestedError(line.text)
	}
	idle := c.linesWanted == 0
	c.linesWanted, c.readErr = 0, err
	if idle && !c.isLeaving {
		c.closeErr = cmp.Or(c.closeErr, transportError("listen", describeError("", err)))
	}
	return asked, c.isLeaving
}

func unrequestedError(text string) error {
	return fmt.Errorf("the launcher said more than it was asked: %s", quoteRequest(text))
}

// Close ends the connection without a word to the server, and waits for the request
// that is under way, which fails.
func (c *Client) Close() error {
	c.setLeaving()
	c.fail(transportError("close", framework.ErrClosed))
	err := c.conn.Close()
	c.wg.Wait()
	return err
}

// A RefusedError is what a request returns that the server understood and did not do.
type RefusedError struct{ Answer Line }

func (e *RefusedError) Error() string { return "the launcher refused: " + e.Answer.String() }

func transportError(op string, err error) error {
	return &framework.TransportError{Component: "bootstrap pmi1", Peer: "the launcher", Op: op, Err: err}
}

// leave says that an end of the connection is no news.
func (c *Client) setLeaving() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isLeaving = true
}

// fail ends the conversation because of err, unless it has ended before, and returns
// the reason.
func (c *Client) fail(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closeErr = cmp.Or(c.closeErr, err)
	return c.closeErr
}

// Err returns why the conversation is over; nil while it is not.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closeErr
}

// take waits for this call's turn. It is given back by whoever has it last.
func (c *Client) lock(ctx context.Context) error {
	select {
	case <-c.turnToken:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	err := c.Err()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		c.unlock()
	}
	return err
}

func (c *Client) unlock() { c.turnToken <- struct{}{} }

// ask sends a request and returns its answer, which must be a line of command want.
func (c *Client) request(ctx context.Context, want, cmd string, fields ...string) (Line, error) {
	lines, err := c.requestLines(ctx, []string{want}, cmd, fields...)
	if err != nil {
		return Line{}, err
	}
	return lines[0], nil
}

// requestLines is ask for a request that is answered by several lines.
func (c *Client) requestLines(ctx context.Context, want []string, cmd string, fields ...string) ([]Line, error) {
	text, err := formatRequest(cmd, fields...)
	if err != nil {
		return nil, transportError(cmd, err)
	}
	if err := c.lock(ctx); err != nil {
		return nil, err
	}
	type answer struct {
		lines []Line
		err   error
	}
	answered := make(chan answer, 1)
	c.wg.Go(func() {
		defer c.unlock()
		lines, err := c.exchange(text, want)
		if err != nil {
			err = c.fail(transportError(cmd, err))
		}
		answered <- answer{lines, err}
	})
	select {
	case a := <-answered:
		return a.lines, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// exchange writes one request, in one piece because servers wait for the rest of a
// line before they serve anybody else, and takes the lines that answer it.
func (c *Client) exchange(text string, want []string) ([]Line, error) {
	c.mu.Lock()
	ended := c.readErr
	if ended == nil {
		c.linesWanted = len(want)
	}
	c.mu.Unlock()
	if ended != nil {
		return nil, describeError(text, ended)
	}
	late := time.NewTimer(c.timeout)
	defer late.Stop()
	if err := c.conn.SetWriteDeadline(time.Now().Add(c.timeout)); err != nil {
		return nil, err
	}
	if _, err := io.WriteString(c.conn, text); err != nil {
		return nil, describeError(text, err)
	}
	var lines []Line
	for _, cmd := range want {
		select {
		case got := <-c.answers:
			if got.err != nil {
				return nil, describeError(text, got.err)
			}
			if got.line.Cmd != cmd {
				return nil, fmt.Errorf("the launcher answered %s with %s", quoteRequest(text), got.line)
			}
			lines = append(lines, got.line)
		case <-late.C:
			return nil, fmt.Errorf("%w: no complete answer to %s within %v", framework.ErrTimeout, quoteRequest(text), c.timeout)
		}
	}
	return lines, nil
}

// parseRead makes a line of what a reader gave.
func parseRead(text []byte, err error) (Line, error) {
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return Line{}, fmt.Errorf("the launcher's line %s is over %d bytes", Quote(string(text)), MaxLine)
	case err != nil && len(text) > 0:
		return Line{}, fmt.Errorf("the launcher's line %s is cut short: %w", Quote(string(text)), err)
	case err != nil:
		return Line{}, err
	}
	return Parse(string(text[:len(text)-1]))
}

// explain adds to an error of the connection what the client was doing; text is the
// request, if there was one.
func describeError(text string, err error) error {
	switch {
	case err == io.EOF && text == "": // and no part of a line
		return fmt.Errorf("the launcher closed the connection: %w", err)
	case err == io.EOF:
		return fmt.Errorf("the launcher closed the connection instead of answering %s: %w", quoteRequest(text), err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%w: the launcher does not read %s: %w", framework.ErrTimeout, quoteRequest(text), err)
	case text == "":
		return err
	}
	return fmt.Errorf("%w (after %s)", err, quoteRequest(text))
}

func quoteRequest(text string) string { return Quote(strings.TrimSuffix(text, "\n")) }
