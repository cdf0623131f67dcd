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
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ferrympi/ferry/framework"
)

// A Client is the connection of the process to its PMI-1 server. Its methods may be called
// concurrently, and requests are sequential. The first answer that is missing or invalid ends the
// connection, and every later call returns that error, because later answers could no longer be
// assigned to requests.
//
// Errors are *framework.TransportError, which quotes the server's line if there is one, and wraps
// framework.ErrTimeout for a missing answer; a *RefusedError in it for a request that the server
// refused; and the cause of ctx when that has ended. A call whose ctx ends leaves its request in
// progress, and the next call waits for that.
type Client struct {
	conn    net.Conn
	timeout time.Duration
	onLost  func(error)
	// Holds a token while no request is in progress.
	turnToken chan struct{}
	// Lines that answer a request. It has room for all of them.
	answers chan lineOrError
	wg      sync.WaitGroup

	// Set by Init, as the next two.
	subversion int
	limits     Limits
	kvsName    string

	mu sync.Mutex
	// Lines that the request in progress still expects.
	linesWanted int
	// There are no further lines.
	readErr error
	// This process ends the connection.
	isLeaving bool
	// Cause of the end of the connection.
	closeErr error
}

// lineOrError is a line, or the end of all lines.
type lineOrError struct {
	line Line
	err  error
}

// maxLines is the largest number of lines that answer one request.
const maxLines = 4

// New returns a client that owns conn. Each answer must arrive within timeout. onLost is called
// once, on a goroutine of the client, if the server ends the connection without a request. It must
// not call the client.
func New(conn net.Conn, timeout time.Duration, lost func(error)) *Client {
	c := &Client{conn: conn, timeout: timeout, onLost: lost, turnToken: make(chan struct{}, 1), answers: make(chan lineOrError, maxLines+1)}
	c.turnToken <- struct{}{}
	c.wg.Go(c.read)
	return c
}

// read delivers lines to the request in progress until the connection ends or is invalid. An
// unrequested line is invalid too, because later answers could not be assigned.
func (c *Client) read() {
	r := bufio.NewReaderSize(c.conn, MaxLine)
	for {
		text, err := readLine(r)
		hasEnded := err != nil && !errors.Is(err, bufio.ErrBufferFull) && !errors.Is(err, errPMI2)
		line, err := parseRead(text, err)
		behind, _ := r.Peek(r.Buffered())
		isRequested, isExpected := c.acceptLine(line, err, string(behind))
		if isRequested {
			c.answers <- lineOrError{line, err}
		}
		if hasEnded && !isExpected {
			c.onLost(err)
		}
		if !isRequested || err != nil {
			return
		}
	}
}

// acceptLine records a line or error, and behind, which was received together with it. It reports
// whether a request expects the line, and whether an end of the connection is expected.
func (c *Client) acceptLine(line Line, err error, behind string) (isRequested, isExpected bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if isRequested = c.linesWanted > 0; isRequested && err == nil {
		// This precedes the delivery, so that the next request finds the new count.
		if c.linesWanted--; c.linesWanted > 0 || behind == "" {
			return isRequested, c.isLeaving
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
	return isRequested, c.isLeaving
}

func unrequestedError(text string) error {
	return fmt.Errorf("the launcher sent more lines than requested: %s", quoteRequest(text))
}

// Close ends the connection without finalize, and waits for the request in progress, which fails.
func (c *Client) Close() error {
	c.setLeaving()
	c.fail(transportError("close", framework.ErrClosed))
	err := c.conn.Close()
	c.wg.Wait()
	return err
}

// A RefusedError is the error of a request that the server refused.
type RefusedError struct{ Answer Line }

func (e *RefusedError) Error() string { return "the launcher refused: " + e.Answer.String() }

func transportError(op string, err error) error {
	return &framework.TransportError{Component: "bootstrap pmi1", Peer: "the launcher", Op: op, Err: err}
}

// setLeaving marks the end of the connection as expected.
func (c *Client) setLeaving() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isLeaving = true
}

// fail ends the connection with err as the cause, unless there is an earlier one, and returns the
// cause.
func (c *Client) fail(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closeErr = cmp.Or(c.closeErr, err)
	return c.closeErr
}

// Err returns the cause of the end of the connection, or nil.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closeErr
}

// lock waits until no request is in progress. The caller, or the goroutine that completes its
// request, calls unlock.
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

// request sends a request and returns its answer, a line of command want.
func (c *Client) request(ctx context.Context, want, cmd string, fields ...string) (Line, error) {
	lines, err := c.requestLines(ctx, []string{want}, cmd, fields...)
	if err != nil {
		return Line{}, err
	}
	return lines[0], nil
}

// requestLines is request for an answer of several lines.
func (c *Client) requestLines(ctx context.Context, want []string, cmd string, fields ...string) ([]Line, error) {
	text, err := formatRequest(cmd, fields...)
	if err != nil {
		return nil, transportError(cmd, err)
	}
	return c.send(ctx, cmd, text, want)
}

// send sends the text of a request, and returns the lines that answer it, of the commands want.
func (c *Client) send(ctx context.Context, cmd, text string, want []string) ([]Line, error) {
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

// exchange writes one request and returns the lines that answer it. It writes in one piece, because
// servers wait for the rest of a line before they serve others.
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

// errPMI2 is the error of a message in the form of PMI-2.
var errPMI2 = errors.New("it has the form of PMI-2")

// pmi2Header is the length of PMI-2's header, the length of the rest as a decimal number.
const pmi2Header = 6

// readLine reads a line with its end. A message in the form of PMI-2, which has no such end, is
// errPMI2. Slurm refuses some requests so.
func readLine(r *bufio.Reader) ([]byte, error) {
	n, ok := peekPMI2Header(r)
	if !ok {
		return r.ReadSlice('\n')
	}
	text, _ := r.Peek(min(pmi2Header+n, MaxLine))
	return text, errPMI2
}

// peekPMI2Header returns the number in a header of PMI-2. It waits for no byte after one that is in
// no header.
func peekPMI2Header(r *bufio.Reader) (n int, ok bool) {
	var header []byte
	for i := range pmi2Header {
		var err error
		if header, err = r.Peek(i + 1); err != nil || header[i] != ' ' && (header[i] < '0' || header[i] > '9') {
			return 0, false
		}
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(header)))
	return n, err == nil && n > 0
}

// parseRead parses the result of a read.
func parseRead(text []byte, err error) (Line, error) {
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return Line{}, fmt.Errorf("the launcher's line %s is over %d bytes", Quote(string(text)), MaxLine)
	case errors.Is(err, errPMI2):
		return Line{}, fmt.Errorf("the launcher's message %s: %w", Quote(string(text)), err)
	case err != nil && len(text) > 0:
		return Line{}, fmt.Errorf("the launcher's line %s is truncated: %w", Quote(string(text)), err)
	case err != nil:
		return Line{}, err
	}
	return Parse(string(text[:len(text)-1]))
}

// describeError adds the request, or "" for none, to an error of the connection.
func describeError(text string, err error) error {
	switch {
	case err == io.EOF && text == "": // Without a part of a line.
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

// quoteRequest quotes the first line of a request. The others of a spawn may be secrets.
func quoteRequest(text string) string {
	first, _, _ := strings.Cut(text, "\n")
	return Quote(first)
}
