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
	conn    net.Conn
	r       *bufio.Reader // of whose turn it is
	timeout time.Duration
	turn    chan struct{} // holds a token while nobody speaks
	wg      sync.WaitGroup

	subversion int    // set by Init
	maxes      Maxes  // set by Init
	kvsname    string // set by Init

	mu  sync.Mutex
	err error // why it is over
}

// New returns a client on conn, which becomes its own. Each answer has timeout to come.
func New(conn net.Conn, timeout time.Duration) *Client {
	c := &Client{conn: conn, r: bufio.NewReaderSize(conn, MaxLine), timeout: timeout, turn: make(chan struct{}, 1)}
	c.turn <- struct{}{}
	return c
}

// Close ends the connection without a word to the server, and waits for the request
// that is under way, which fails.
func (c *Client) Close() error {
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

// fail ends the conversation because of err, unless it has ended before, and returns
// the reason.
func (c *Client) fail(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = cmp.Or(c.err, err)
	return c.err
}

// Err returns why the conversation is over; nil while it is not.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// take waits for this call's turn. It is given back by whoever has it last.
func (c *Client) take(ctx context.Context) error {
	select {
	case <-c.turn:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	err := c.Err()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		c.give()
	}
	return err
}

func (c *Client) give() { c.turn <- struct{}{} }

// ask sends a request and returns its answer, which must be a line of command want.
func (c *Client) ask(ctx context.Context, want, cmd string, fields ...string) (Line, error) {
	lines, err := c.askAll(ctx, []string{want}, cmd, fields...)
	if err != nil {
		return Line{}, err
	}
	return lines[0], nil
}

// askAll is ask for a request that is answered by several lines.
func (c *Client) askAll(ctx context.Context, want []string, cmd string, fields ...string) ([]Line, error) {
	text, err := request(cmd, fields...)
	if err != nil {
		return nil, transportError(cmd, err)
	}
	if err := c.take(ctx); err != nil {
		return nil, err
	}
	type answer struct {
		lines []Line
		err   error
	}
	answered := make(chan answer, 1)
	c.wg.Go(func() {
		defer c.give()
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
// line before they serve anybody else, and reads the lines that answer it.
func (c *Client) exchange(text string, want []string) ([]Line, error) {
	if n := c.r.Buffered(); n > 0 {
		b, _ := c.r.Peek(n)
		return nil, fmt.Errorf("the launcher has said more than it was asked: %s", Quote(string(b)))
	}
	if err := c.conn.SetDeadline(time.Now().Add(c.timeout)); err != nil {
		return nil, err
	}
	if _, err := io.WriteString(c.conn, text); err != nil {
		return nil, c.explain(text, err)
	}
	var lines []Line
	for _, cmd := range want {
		l, err := c.readLine()
		if err != nil {
			return nil, c.explain(text, err)
		}
		if l.Cmd != cmd {
			return nil, fmt.Errorf("the launcher answered %s with %s", Quote(strings.TrimSuffix(text, "\n")), l)
		}
		lines = append(lines, l)
	}
	return lines, nil
}

func (c *Client) readLine() (Line, error) {
	b, err := c.r.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return Line{}, fmt.Errorf("the launcher's line %s is over %d bytes", Quote(string(b)), MaxLine)
	case err != nil && len(b) > 0:
		return Line{}, fmt.Errorf("the launcher's line %s is cut: %w", Quote(string(b)), err)
	case err != nil:
		return Line{}, err
	}
	return Parse(string(b[:len(b)-1]))
}

// explain says of an error of the connection what was wanted.
func (c *Client) explain(text string, err error) error {
	asked := Quote(strings.TrimSuffix(text, "\n"))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%w: no whole answer to %s within %v: %w", framework.ErrTimeout, asked, c.timeout, err)
	case err == io.EOF: // and no part of a line
		return fmt.Errorf("the launcher closed the connection instead of answering %s: %w", asked, err)
	}
	return fmt.Errorf("%w (after %s)", err, asked)
}
