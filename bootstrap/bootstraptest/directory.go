package bootstraptest

import (
	"slices"
	"strings"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
)

func directoryCases() claimList {
	return claimList{
		kittest.New("PublishLookupUnpublish", Want{Size: 1, Timeout: longTimeout}, (*job).publishLookupUnpublish),
		kittest.New("LookupWaitsForPublish", Want{Size: 2, Timeout: longTimeout}, (*job).lookupWaitsForPublish),
		kittest.New("LookupExpires", Want{Size: 1, Timeout: shortTimeout}, (*job).lookupExpires),
		kittest.New("LookupIsWithdrawn", Want{Size: 1, Timeout: longTimeout}, (*job).lookupWithdrawn),
		kittest.New("NamedPsets", Want{Size: 4, Timeout: longTimeout, Psets: map[string][]uint32{
			"ocean": {0, 1}, "Air Model": {3, 2}}}, (*job).checkNamedPsets),
	}
}

// optional returns an optional interface of a rank's client, or skips the case.
func optional[A any](j *job, rank int) A {
	a, ok := framework.As[A](j.Clients[rank])
	if !ok {
		j.Skipf("the client has no %T", &a)
	}
	return a
}

func (j *job) checkFound(d bootstrap.Directory, name, want string) {
	v, ok, err := d.Lookup(j.Context(), name, true)
	if err != nil || !ok || string(v) != want {
		j.Fatalf("lookup %q: %q, %v, %v, want %q", name, v, ok, err, want)
	}
}

func (j *job) checkNotFound(d bootstrap.Directory, name string) {
	if v, ok, err := d.Lookup(j.Context(), name, false); err != nil || ok || len(v) != 0 {
		j.Fatalf("lookup of an unpublished name: %q, %v, %v", v, ok, err)
	}
}

func (j *job) publishLookupUnpublish() {
	d, ctx := optional[bootstrap.Directory](j, 0), j.Context()
	j.checkNotFound(d, "n")
	for _, value := range []string{"one", ""} {
		b := []byte(value)
		j.Check(d.Publish(ctx, "n", b))
		clear(b) // Publish has copied it.
		j.checkFound(d, "n", value)
		j.Is("second publish", d.Publish(ctx, "n", nil), bootstrap.ErrPublished)
		j.checkFound(d, "n", value)
		j.Check(d.Unpublish(ctx, "n"))
		j.Is("second unpublish", d.Unpublish(ctx, "n"), bootstrap.ErrNotPublished)
	}
	j.checkNotFound(d, "n")
	j.Is("value over the limit", d.Publish(ctx, "n", make([]byte, bootstrap.MaxValue+1)), framework.ErrUnsupported)
	j.Is("name over the limit", d.Publish(ctx, strings.Repeat("n", bootstrap.MaxName+1), nil), framework.ErrUnsupported)
}

func (j *job) lookupWaitsForPublish() {
	d := []bootstrap.Directory{optional[bootstrap.Directory](j, 0), optional[bootstrap.Directory](j, 1)}
	j.Each(4, func(i int) {
		if i == 3 {
			j.Check(d[1].Publish(j.Context(), "port", []byte("7")))
		}
		j.checkFound(d[i%2], "port", "7")
	})
}

func (j *job) lookupExpires() {
	d := optional[bootstrap.Directory](j, 0)
	_, ok, err := d.Lookup(j.Context(), "never", true)
	if ok {
		j.Fatalf("found an unpublished name")
	}
	j.Is("lookup", err, framework.ErrTimeout)
	j.Check(d.Publish(j.Context(), "never", nil))
	j.checkFound(d, "never", "")
}

func (j *job) lookupWithdrawn() {
	d := optional[bootstrap.Directory](j, 0)
	ctx, cancel := j.shortContext()
	defer cancel()
	_, _, err := d.Lookup(ctx, "never", true)
	j.Is("lookup", err, errCause)
	j.Check(d.Publish(j.Context(), "never", []byte("now")))
	j.checkFound(d, "never", "now")
}

func (j *job) checkNamedPsets() {
	for r := range j.Clients {
		p, ctx := optional[bootstrap.PsetSource](j, r), j.Context()
		names, err := p.Psets(ctx)
		if slices.Sort(names); err != nil || !slices.Equal(names, []string{"Air Model", "ocean"}) {
			j.Fatalf("psets are %q, %v", names, err)
		}
		for ask, want := range map[string]bootstrap.PsetInfo{
			"OCEAN":     {Name: "ocean", Members: framework.ProcsOf(j.group(0, 1)...)},
			"air model": {Name: "Air Model", Members: framework.ProcsOf(j.group(3, 2)...)},
		} {
			got, err := p.Pset(ctx, ask)
			if err != nil || got.Name != want.Name || !got.Members.Equal(want.Members) || got.Dynamic {
				j.Fatalf("pset %q is %+v, %v, want %+v", ask, got, err, want)
			}
		}
		_, err = p.Pset(ctx, "no such set")
		j.Is("unknown pset", err, framework.ErrPset)
		for _, name := range append(names, bootstrap.BuiltinPsets()...) {
			if !strings.Contains(err.Error(), name) {
				j.Fatalf("the error for an unknown pset (%v) does not say that there is %s", err, name)
			}
		}
	}
}
