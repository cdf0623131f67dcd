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

// Requested version. A server that supports 1.2 reports it anyway, and a server that does not kills
// the job if more than 1.1 is requested.
const (
	version    = "1"
	subversion = "1"

	newestSubversion = 2
)

// MaxSize is the largest accepted size of a job.
const MaxSize = 1 << 24

// Limits are a server's limits, in bytes with the zero byte that servers in C need.
type Limits struct{ KVSName, Key, Value int }

// minLimits are the smallest limits that the names of this package's callers fit into. Known
// servers have 256, 64 and 1,024.
var minLimits = Limits{KVSName: 16, Key: 64, Value: 64}

// Identify requests the identity of this process from a server with a port. pmiid comes from the
// environment. It is the first request of such a connection, before Init.
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
		return 0, 0, c.failMalformed("initack", fmt.Errorf("the launcher reports rank %d of %d", rank, size))
	}
	return rank, size, nil
}

// Init requests the server's limits and the name of the job's key space. It precedes other
// requests, and is called once.
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

// failMalformed ends the connection because of an invalid answer.
func (c *Client) failMalformed(op string, err error) error { return c.fail(transportError(op, err)) }

// HasGroups reports whether the server has barriers of groups (PMI 1.2). A server without them
// takes each for a barrier of all.
func (c *Client) HasGroups() bool { return c.subversion >= 2 }

// Limits returns the server's limits.
func (c *Client) Limits() Limits { return c.limits }

// KVSName returns the name of the job's key space, which is unique among jobs.
func (c *Client) KVSName() string { return c.kvsName }

// MaxGroup is the longest group of a Barrier.
const MaxGroup = MaxRequest - len("cmd=barrier_in group=\n")

// Barrier waits for all processes of the job, or for group if that is not empty. A group is
// "WORLD", "NODE" or ranks separated by commas, with an optional ":" and a tag, and is equal in all
// members. Barrier lasts up to the client's timeout, and blocks other requests. The caller avoids a
// list of one rank, which kills some servers, and groups on a server without them (HasGroups).
func (c *Client) Barrier(ctx context.Context, group string) error {
	var fields []string
	if group != "" {
		fields = []string{"group", group}
	}
	l, err := c.request(ctx, "barrier_out", "barrier_in", fields...)
	return c.checkDone("barrier_in", l, err)
}

// checkDone returns the error of a request without results.
func (c *Client) checkDone(op string, l Line, err error) error {
	if err == nil && l.IsRefused() {
		err = transportError(op, &RefusedError{l})
	}
	return err
}

// MaxPort returns the largest length of the port of a name.
func (c *Client) MaxPort(service string) int {
	return min(c.limits.Value-1, MaxRequest-len("cmd=publish_name service= port=\n")-len(service))
}

// Publish publishes port under a name. Hydra refuses a name in use, and Slurm replaces its port.
func (c *Client) Publish(ctx context.Context, service, port string) error {
	l, err := c.request(ctx, "publish_result", "publish_name", "service", service, "port", port)
	return c.checkDone("publish_name "+service, l, err)
}

// Unpublish withdraws a name.
func (c *Client) Unpublish(ctx context.Context, service string) error {
	l, err := c.request(ctx, "unpublish_result", "unpublish_name", "service", service)
	return c.checkDone("unpublish_name "+service, l, err)
}

// Lookup returns the port of a name. ok is false if there is none.
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

// Finalize ends the connection in order. The server accepts no further connection of this process.
func (c *Client) Finalize(ctx context.Context) error {
	c.setLeaving()
	l, err := c.request(ctx, "finalize_ack", "finalize")
	err = c.checkDone("finalize", l, err)
	if closed := c.Close(); err == nil && closed != nil {
		err = transportError("finalize", closed)
	}
	return err
}

// abortTimeout limits the wait of Abort for another request. A server that does not answer that may
// still read the next one.
const abortTimeout = time.Second

// Abort requests the end of the job with status. There is no answer, because the server kills this
// process too.
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
