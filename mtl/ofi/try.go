package ofi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ferrympi/ferry/internal/cpu"
	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/mtl"
)

// errHangs is what a call of libfabric is given up with.
var errHangs = errors.New("it does not return")

// hanging names the calls that were given up and have not come back, each with the
// time.Time of that. Their threads are lost, and what they hold libfabric's locks for
// stays locked: who calls again learns so at once, and loses no second thread.
var hanging sync.Map

// patience is a deadline in steps of a twentieth. A process that is stopped, or
// starved of processors, for long loses one step by it.
type patience struct {
	left, step time.Duration
	last       time.Time
}

func newPatience(d time.Duration) *patience { return &patience{d, max(d/20, 1), time.Now()} }

// over reports whether the time is up. It has to be asked at every step.
func (p *patience) over() bool {
	now := time.Now()
	p.left -= min(now.Sub(p.last), p.step)
	p.last = now
	return p.left <= 0
}

// within calls f, and waits for it until the deadline. f may end up in C code that
// never returns: then its goroutine and its thread are left behind, and within
// returns an error that wraps errHangs. What f succeeds with after all goes to late.
// f's context ends when f is given up.
func within[T any](ctx context.Context, deadline time.Duration, name string, f func(context.Context) (T, error), late func(T)) (T, error) {
	var none T
	if since, hangs := hanging.Load(name); hangs {
		return none, fmt.Errorf("%w since %v", errHangs, since.(time.Time).Format(time.RFC3339))
	}
	type result struct {
		v   T
		err error
	}
	given, giveUp := context.WithCancel(context.Background())
	defer giveUp()
	done := make(chan result)
	go func() {
		v, err := f(given)
		select {
		case done <- result{v, err}:
		case <-given.Done():
			if err == nil {
				late(v)
			}
			hanging.Delete(name)
		}
	}()
	wait := newPatience(deadline)
	tick := time.NewTicker(wait.step)
	defer tick.Stop()
	var err error
	for err == nil {
		select {
		case r := <-done:
			return r.v, r.err
		case <-tick.C:
			if wait.over() {
				err = fmt.Errorf("%w within %v", errHangs, deadline)
			}
		case <-ctx.Done():
			err = fmt.Errorf("%w: %w", errHangs, context.Cause(ctx))
		}
	}
	select {
	case r := <-done: // just in time
		return r.v, r.err
	default:
	}
	hanging.Store(name, time.Now())
	return none, err
}

// try opens a candidate and tests it, with each layout that may serve.
func try(ctx context.Context, env mtl.Env, p *params, lib *libfabric.Library, c *candidate) (*module, error) {
	layouts, why, err := layoutsFor(c.info, p.Layout, lib.Version())
	if err != nil {
		return nil, err
	}
	waits := waitsFor(p.Wait, env.Identity.LocalSize > cpu.ForRanks())
	var failed error
	for _, l := range layouts {
		for _, fd := range waits {
			// The test has the deadline; what does not even come back to it gets half as
			// long again.
			m, err := within(ctx, p.Deadline+p.Deadline/2, "provider "+c.info.String(), func(given context.Context) (*module, error) {
				return openTested(given, env, p, lib, c, l, fd)
			}, func(m *module) { m.Close() })
			if err == nil {
				if why != "" && !l.data {
					m.about.Notes = append(m.about.Notes, "a message has its sender in the tag: "+why)
				}
				return m, nil
			}
			failed = err
			if l.data {
				why = err.Error()
			}
			var step *libfabric.Error
			if ctx.Err() != nil || errors.Is(err, errHangs) || errors.Is(err, errGivenUp) {
				return nil, err
			}
			if !errors.As(err, &step) {
				break // not how it is awaited, but how it works
			}
		}
	}
	return nil, failed
}

// waitsFor returns whether to open with a descriptor, in the order of trial. A
// completion queue that has one costs a tenth of the message rate (188,900 instead
// of 212,500 messages of 8 bytes a second over tcp;ofi_rxm), but where ranks outnumber
// processors they sleep all the time, and a millisecond each is far more.
func waitsFor(wait string, crowded bool) []bool {
	switch {
	case wait == "fd":
		return []bool{true}
	case wait == "auto" && crowded:
		return []bool{true, false}
	}
	return []bool{false}
}

// layoutsFor returns the layouts to try in a version of the library, best first, and why
// the sender of a message is not in completion data where nobody has asked for that.
func layoutsFor(info *libfabric.Info, name string, v libfabric.Version) (all []layout, why string, err error) {
	width := usable(info.TagFormat)
	lacks := ""
	if what, ok := needs(info.Provider, Pack, v); ok {
		lacks = what
	} else if !carriesSource(info) {
		lacks = "it lacks completion data or receives from one address (FI_DIRECTED_RECV)"
	}
	prefers, _ := needs(info.Provider, Prefer, v)
	var asked []bool // with data, or not
	switch {
	case name == "data" && lacks != "":
		return nil, "", fmt.Errorf("mtl.ofi.layout=data can't be: %s", lacks)
	case name == "data":
		asked = []bool{true}
	case name == "packed":
		asked = []bool{false}
	case name == "auto":
		why = cmp.Or(lacks, prefers)
		asked = []bool{true, false}
		if why != "" {
			asked = asked[1:]
		}
	default:
		l, err := parseLayout(name, width)
		return []layout{l}, "", err
	}
	for _, data := range asked {
		l, failed := newLayout(width, data)
		if failed != nil {
			err = failed
			continue
		}
		all = append(all, l)
	}
	if len(all) > 0 {
		err = nil
	}
	return all, why, err
}

// openTested opens an endpoint and tests it, until ctx ends.
func openTested(ctx context.Context, env mtl.Env, p *params, lib *libfabric.Library, c *candidate, l layout, fd bool) (*module, error) {
	_, lookUp := needs(c.info.Provider, Prefer, lib.Version())
	ep, err := lib.Open(c.info, fd, l.data || !lookUp, roomOf(c.info, lib.Version()).queue)
	if err != nil {
		return nil, err
	}
	m := newModule(env, lib, ep, c, l, p)
	if err = m.begin(c, listeners(c.info, p.Buffers)); err == nil {
		wait := newPatience(p.Deadline)
		err = selfTest(m, p.Selftest == "long", p.Deadline/10, func() bool { return wait.over() || ctx.Err() != nil })
	}
	if err != nil {
		m.broken = err // it may bring nothing to its end: Close does not wait for that
		m.Close()
		return nil, err
	}
	return m, nil
}
