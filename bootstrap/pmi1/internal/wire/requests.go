package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"
)

// The version that is asked for: a server that knows 1.2 says so itself, and one that
// does not kills the job when it is asked for more than 1.1.
const (
	version    = "1"
	subversion = "1"

	newestSubversion = 2
)

// MaxSize is the largest job that a server is believed to have.
const MaxSize = 1 << 24

// Maxes are a server's limits, in bytes with the zero byte that servers in C need.
type Limits struct{ KVSName, Key, Value int }

// minLimits are the smallest limits that the names of this package's callers fit into.
// Servers say 256, 64 and 1,024.
var minLimits = Limits{KVSName: 16, Key: 64, Value: 64}

// Who asks a server that was found by its port who this process is: pmiid is what its
// environment says. It is the first request on such a connection, and comes before Init.
func (c *Client) Identify(ctx context.Context, pmiid int) (rank, size int, err error) {
	lines, err := c.requestLines(ctx, []string{"initack", "set", "set", "set"}, "initack", "pmiid", strconv.Itoa(pmiid))
	if err != nil {
		return 0, 0, err
	}
	rank, size = -1, -1
	for _, l := range lines {
		if l.IsRefused() {
			return 0, 0, c.failMalformed("initack", &RefusedError{l})
		}
		for key, into := range map[string]*int{"rank": &rank, "size": &size} {
			if _, ok := l.Value(key); !ok {
				continue
			}
			n, err := l.Number(key, 0, MaxSize)
			if err == nil && *into >= 0 && n != *into {
				err = fmt.Errorf("the launcher's line %s: %s was %d before", l, key, *into)
			}
			if err != nil {
				return 0, 0, c.failMalformed("initack", err)
			}
			*into = n
		}
	}
	if rank < 0 || rank >= size {
		return 0, 0, c.failMalformed("initack", fmt.Errorf("the launcher says rank %d of %d", rank, size))
	}
	return rank, size, nil
}

// Init greets the server, and learns its limits and the name of this process's key
// space. Other requests come after it; it is called once.
func (c *Client) Init(ctx context.Context) error {
	l, err := c.request(ctx, "response_to_init", "init", "pmi_version", version, "pmi_subversion", subversion)
	if err != nil {
		return err
	}
	sub, err := checkVersion(l)
	if err != nil {
		return c.failMalformed("init", err)
	}
	c.subversion = sub
	if l, err = c.request(ctx, "maxes", "get_maxes"); err != nil {
		return err
	}
	if c.limits, err = parseLimits(l); err != nil {
		return c.failMalformed("get_maxes", err)
	}
	if l, err = c.request(ctx, "my_kvsname", "get_my_kvsname"); err != nil {
		return err
	}
	if c.kvsName, err = l.Text("kvsname"); err == nil && (l.IsRefused() || !isRepresentable(c.kvsName) || len(c.kvsName) > c.limits.KVSName) {
		err = l.errorf("no usable kvsname")
	}
	if err != nil {
		return c.failMalformed("get_my_kvsname", err)
	}
	return nil
}

func checkVersion(l Line) (sub int, err error) {
	if l.IsRefused() {
		return 0, &RefusedError{l}
	}
	if v, _ := l.Value("pmi_version"); v != version {
		return 0, l.errorf("want pmi_version=" + version)
	}
	return l.Number("pmi_subversion", 1, newestSubversion)
}

func parseLimits(l Line) (m Limits, err error) {
	if l.IsRefused() {
		return m, &RefusedError{l}
	}
	var errs [3]error
	m.KVSName, errs[0] = l.Number("kvsname_max", minLimits.KVSName, math.MaxInt32)
	m.Key, errs[1] = l.Number("keylen_max", minLimits.Key, math.MaxInt32)
	m.Value, errs[2] = l.Number("vallen_max", minLimits.Value, math.MaxInt32)
	return m, errors.Join(errs[:]...)
}

// malformed ends the conversation because of an answer that makes no sense.
func (c *Client) failMalformed(op string, err error) error { return c.fail(transportError(op, err)) }

// Groups reports whether the server has barriers of groups (PMI 1.2). One that has not
// takes each for a barrier of all, without a word.
func (c *Client) HasGroups() bool { return c.subversion >= 2 }

// Maxes returns the server's limits.
func (c *Client) Limits() Limits { return c.limits }

// KVSName returns the name of the job's key space, which is unique among jobs.
func (c *Client) KVSName() string { return c.kvsName }

// MaxGroup is the longest group that Barrier can say.
const MaxGroup = MaxRequest - len("cmd=barrier_in group=\n")

// Barrier waits for all processes of the job, or for those of group if it is not
// empty: "WORLD", "NODE" or ranks with commas between, then ":" and a tag. Each
// member says the same. It lasts up to the client's timeout, during which no other
// request is served. A list of one rank kills some servers: that is the caller's to avoid,
// and so is a group with a server that has none (Groups).
func (c *Client) Barrier(ctx context.Context, group string) error {
	var fields []string
	if group != "" {
		fields = []string{"group", group}
	}
	l, err := c.request(ctx, "barrier_out", "barrier_in", fields...)
	return c.checkDone("barrier_in", l, err)
}

// done turns an answer that has nothing but success or failure into an error.
func (c *Client) checkDone(op string, l Line, err error) error {
	if err == nil && l.IsRefused() {
		err = transportError(op, &RefusedError{l})
	}
	return err
}

// MaxPort returns how long the port of a name may be.
func (c *Client) MaxPort(service string) int {
	return min(c.limits.Value-1, MaxRequest-len("cmd=publish_name service= port=\n")-len(service))
}

// Publish publishes a name; who looks it up is told port. Hydra refuses a name that is
// there already, Slurm replaces it.
func (c *Client) Publish(ctx context.Context, service, port string) error {
	l, err := c.request(ctx, "publish_result", "publish_name", "service", service, "port", port)
	return c.checkDone("publish_name "+service, l, err)
}

// Unpublish withdraws a name.
func (c *Client) Unpublish(ctx context.Context, service string) error {
	l, err := c.request(ctx, "unpublish_result", "unpublish_name", "service", service)
	return c.checkDone("unpublish_name "+service, l, err)
}

// Lookup returns what was published under a name; ok is false if nothing is.
func (c *Client) Lookup(ctx context.Context, service string) (port string, ok bool, err error) {
	const op = "lookup_name"
	l, err := c.request(ctx, "lookup_result", op, "service", service)
	if err != nil || l.IsRefused() {
		return "", false, err
	}
	if port, err = l.Text("port"); err != nil {
		return "", false, c.failMalformed(op, err)
	}
	return port, true, nil
}

// Finalize says goodbye and ends the connection. The server serves this process no
// more, on no connection.
func (c *Client) Finalize(ctx context.Context) error {
	c.setLeaving()
	l, err := c.request(ctx, "finalize_ack", "finalize")
	err = c.checkDone("finalize", l, err)
	if closed := c.Close(); err == nil && closed != nil {
		err = transportError("finalize", closed)
	}
	return err
}

// abortTimeout is how long Abort waits for its turn: a server that is silent towards
// another request may still hear this one.
const abortTimeout = time.Second

// Abort asks the server to end the job with status. There is no answer: the server
// kills this process too, unless it is gone itself.
func (c *Client) Abort(ctx context.Context, status int) error {
	text, err := formatRequest("abort", "exitcode", strconv.Itoa(status))
	if err != nil {
		return transportError("abort", err)
	}
	if err := c.Err(); err != nil {
		return err
	}
	patience, cancel := context.WithTimeout(ctx, abortTimeout)
	defer cancel()
	if c.lock(patience) == nil {
		defer c.unlock()
	}
	if err := c.conn.SetWriteDeadline(time.Now().Add(min(c.timeout, abortTimeout))); err != nil {
		return transportError("abort", err)
	}
	if _, err := io.WriteString(c.conn, text); err != nil {
		return transportError("abort", err)
	}
	return nil
}
