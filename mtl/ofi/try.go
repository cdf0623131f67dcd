package ofi

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/cpu"
	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/trial"
)

// errGivenUp ends a test whose time is over.
var errGivenUp = errors.New("nothing came within mtl.ofi.selftest_timeout")

// swap has the module call up to another one than before, which it returns.
func (m *module) swap(up mtl.Receiver) mtl.Receiver {
	before := m.env.Upcall
	m.env.Upcall = up
	return before
}

// try opens a candidate and tests it, with each layout that may serve.
func try(ctx context.Context, env mtl.Env, p *params, lib *libfabric.Library, c *candidate) (*module, error) {
	layouts, why, err := layoutsFor(c.info, p.Layout, lib.Version())
	if err != nil {
		return nil, err
	}
	waits := waitsFor(p.Wait, env.Identity.MostOnMachine() > cpu.ForRanks())
	var failed error
	for _, l := range layouts {
		for _, fd := range waits {
			// The test has the deadline; what does not even come back to it gets half as
			// long again.
			m, err := trial.Within(ctx, p.Deadline+p.Deadline/2, "provider "+c.info.String(), func(given context.Context) (*module, error) {
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
			if ctx.Err() != nil || errors.Is(err, trial.ErrHangs) || errors.Is(err, errGivenUp) {
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
	ep, err := lib.Open(c.info, fd, l.data || !lookUp, roomOf(c.info, p.Buffers, lib.Version()).queue)
	if err != nil {
		return nil, err
	}
	m := newModule(env, lib, ep, c, l, p)
	if err = m.begin(c, listeners(c.info, p.Buffers)); err == nil {
		wait := trial.NewPatience(p.Deadline)
		err = trial.Test{
			Module: m, Self: framework.Peer{Life: m.env.Self, Proc: m.env.Identity.Proc, Blob: m.blob},
			Upcall: m.swap, Aside: l.data, Long: p.Selftest == "long", Soon: p.Deadline / 10,
			GivenUp: func() error {
				if wait.Over() || ctx.Err() != nil {
					return errGivenUp
				}
				return m.broken
			},
		}.Run()
	}
	if err != nil {
		m.broken = err // it may bring nothing to its end: Close does not wait for that
		m.Close()
		return nil, err
	}
	return m, nil
}
