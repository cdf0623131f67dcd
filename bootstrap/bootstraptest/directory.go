package bootstraptest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
)

func directoryCases() claims {
	return claims{
		kittest.Of("PublishLookupUnpublish", Want{Size: 1, Timeout: long}, publish),
		kittest.Of("LookupWaitsForPublish", Want{Size: 2, Timeout: long}, lookupWaits),
		kittest.Of("LookupHasADeadline", Want{Size: 1, Timeout: short}, lookupTimesOut),
		kittest.Of("LookupIsWithdrawn", Want{Size: 1, Timeout: long}, lookupWithdrawn),
		kittest.Of("BuiltinPsets", Want{Size: 3, Timeout: long}, builtinPsets),
		kittest.Of("BuiltinPsetsAlone", Want{Size: 1, Timeout: long}, builtinPsets),
		kittest.Of("NamedPsets", Want{Size: 4, Timeout: long, Psets: map[string][]uint32{
			"ocean": {0, 1}, "Air Model": {3, 2}}}, namedPsets),
	}
}

func directory(c bootstrap.Client) (bootstrap.Directory, error) {
	d, ok := framework.As[bootstrap.Directory](c)
	if !ok {
		return nil, fmt.Errorf("no Directory: %w", ErrSkip)
	}
	return d, nil
}

func wantValue(ctx context.Context, d bootstrap.Directory, name, want string) error {
	v, ok, err := d.Lookup(ctx, name, true)
	if err != nil || !ok || string(v) != want {
		return fmt.Errorf("lookup %q: %q, %v, %v, want %q", name, v, ok, err, want)
	}
	return nil
}

func publish(ctx context.Context, j *job) error {
	d, err := directory(j.Clients[0])
	if err != nil {
		return err
	}
	if v, ok, err := d.Lookup(ctx, "n", false); err != nil || ok || len(v) != 0 {
		return fmt.Errorf("lookup of what nobody published: %q, %v, %v", v, ok, err)
	}
	for _, value := range []string{"one", ""} {
		b := []byte(value)
		if err := d.Publish(ctx, "n", b); err != nil {
			return err
		}
		clear(b) // it was copied
		if err := errors.Join(wantValue(ctx, d, "n", value),
			wantIs("second publish", d.Publish(ctx, "n", nil), bootstrap.ErrPublished),
			wantValue(ctx, d, "n", value),
			d.Unpublish(ctx, "n"),
			wantIs("second unpublish", d.Unpublish(ctx, "n"), bootstrap.ErrNotPublished)); err != nil {
			return err
		}
	}
	_, ok, err := d.Lookup(ctx, "n", false)
	if ok || err != nil {
		return fmt.Errorf("lookup after unpublish: %v, %v", ok, err)
	}
	return errors.Join(
		wantIs("value over the limit", d.Publish(ctx, "n", make([]byte, bootstrap.MaxValue+1)), framework.ErrUnsupported),
		wantIs("name over the limit", d.Publish(ctx, strings.Repeat("n", bootstrap.MaxName+1), nil), framework.ErrUnsupported))
}

func lookupWaits(ctx context.Context, j *job) error {
	d0, err := directory(j.Clients[0])
	if err != nil {
		return err
	}
	d1, err := directory(j.Clients[1])
	if err != nil {
		return err
	}
	return each([]int{0, 1, 2, 3}, func(i int) error {
		if i == 3 {
			return d1.Publish(ctx, "port", []byte("7"))
		}
		return wantValue(ctx, []bootstrap.Directory{d0, d1}[i%2], "port", "7")
	})
}

func lookupTimesOut(ctx context.Context, j *job) error {
	d, err := directory(j.Clients[0])
	if err != nil {
		return err
	}
	_, ok, err := d.Lookup(ctx, "never", true)
	if ok {
		return errors.New("found what nobody published")
	}
	return errors.Join(wantIs("lookup", err, framework.ErrTimeout), d.Publish(ctx, "never", nil), wantValue(ctx, d, "never", ""))
}

func lookupWithdrawn(ctx context.Context, j *job) error {
	d, err := directory(j.Clients[0])
	if err != nil {
		return err
	}
	cctx, cancel := context.WithTimeoutCause(ctx, short/4, errCause)
	defer cancel()
	_, _, err = d.Lookup(cctx, "never", true)
	return errors.Join(wantIs("lookup", err, errCause), d.Publish(ctx, "never", []byte("now")), wantValue(ctx, d, "never", "now"))
}

func psets(c bootstrap.Client) (bootstrap.PsetSource, error) {
	p, ok := framework.As[bootstrap.PsetSource](c)
	if !ok {
		return nil, fmt.Errorf("no PsetSource: %w", ErrSkip)
	}
	return p, nil
}

func wantPset(ctx context.Context, p bootstrap.PsetSource, ask, name string, members []framework.Proc) error {
	got, err := p.Pset(ctx, ask)
	if err != nil {
		return err
	}
	if got.Name != name || !slices.Equal(got.Members, members) || got.Dynamic {
		return fmt.Errorf("pset %q is %+v, want %q with %v", ask, got, name, members)
	}
	return nil
}

func builtinPsets(ctx context.Context, j *job) error {
	for r, c := range j.Clients {
		p, err := psets(c)
		if err != nil {
			return err
		}
		names, err := p.Psets(ctx)
		if err != nil {
			return err
		}
		if len(names) < 3 || !slices.Equal(names[:3], []string{"mpi://WORLD", "mpi://SELF", "mpix://SHARED"}) {
			return fmt.Errorf("rank %d: psets are %q", r, names)
		}
		var local []framework.Proc
		for _, q := range c.Identity().Locals {
			local = append(local, j.group(int(q))[0])
		}
		_, err = p.Pset(ctx, "no such set")
		if err == nil || !strings.Contains(err.Error(), "mpi://WORLD") {
			return fmt.Errorf("the error for an unknown pset (%v) does not say what exists", err)
		}
		if err := errors.Join(
			wantIs("unknown pset", err, framework.ErrPset),
			wantPset(ctx, p, "mpi://WORLD", "mpi://WORLD", j.world()),
			wantPset(ctx, p, "MPI://world", "mpi://WORLD", j.world()),
			wantPset(ctx, p, "mpi://self", "mpi://SELF", j.group(r)),
			wantPset(ctx, p, "mpix://shared", "mpix://SHARED", local)); err != nil {
			return fmt.Errorf("rank %d: %w", r, err)
		}
	}
	return nil
}

func namedPsets(ctx context.Context, j *job) error {
	for _, c := range j.Clients {
		p, err := psets(c)
		if err != nil {
			return err
		}
		names, err := p.Psets(ctx)
		if err != nil {
			return err
		}
		if len(names) != 5 || !slices.Contains(names, "ocean") || !slices.Contains(names, "Air Model") {
			return fmt.Errorf("psets are %q", names)
		}
		if err := errors.Join(
			wantPset(ctx, p, "OCEAN", "ocean", j.group(0, 1)),
			wantPset(ctx, p, "air model", "Air Model", j.group(3, 2))); err != nil {
			return err
		}
	}
	return nil
}
