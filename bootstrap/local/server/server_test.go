package server

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/framework"
)

func TestParsePset(t *testing.T) {
	for _, c := range []struct {
		in, name string
		ranks    []uint32
		err      string
	}{
		{in: "ocean=0-3,7", name: "ocean", ranks: []uint32{0, 1, 2, 3, 7}},
		{in: "Air Model=3,1", name: "Air Model", ranks: []uint32{3, 1}},
		{in: "a=b=2", name: "a=b", ranks: []uint32{2}},
		{in: "app://x = 0 - 1 , 4", name: "app://x", ranks: []uint32{0, 1, 4}},
		{in: "ocean", err: "want NAME=RANKS"},
		{in: "=1", err: "needs a name"},
		{in: "ocean=", err: "empty item"},
		{in: "ocean=1,,2", err: "empty item"},
		{in: "ocean=3-1", err: "is descending"},
		{in: "ocean=1,0-2", err: "rank 1 is listed twice"},
		{in: "ocean=x", err: `"x" is not a rank`},
		{in: "ocean=-1", err: `"" is not a rank`},
		{in: "ocean=99999999999", err: "is not a rank"},
		{in: "ocean=0-2000000", err: "over the limit"},
		{in: "MPI://x=1", err: "reserved"},
		{in: "mpix://x=1", err: "reserved"},
		{in: strings.Repeat("n", 2000) + "=1", err: "the limit is 1024"},
	} {
		p, err := ParsePset(c.in)
		if c.err != "" {
			if !errors.Is(err, framework.ErrConfig) || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%.40q: got %v, want ErrConfig with %q", c.in, err, c.err)
			}
			continue
		}
		if err != nil || p.Name != c.name || !slices.Equal(p.Ranks, c.ranks) {
			t.Errorf("%q: got %+v, %v", c.in, p, err)
		}
	}
}

func TestNew_InvalidOptions_AreErrConfig(t *testing.T) {
	for want, opt := range map[string]Options{
		"a job of 0 processes":   {},
		"want 1 to 1048576":      {Size: 1<<20 + 1},
		"rank 4 is beyond":       {Size: 4, Psets: []Pset{{"a", []uint32{0, 4}}}},
		"rank 1 is listed twice": {Size: 4, Psets: []Pset{{"a", []uint32{1, 1}}}},
		`"A" is defined twice`:   {Size: 4, Psets: []Pset{{"a", []uint32{1}}, {"A", []uint32{2}}}},
		"reserved":               {Size: 4, Psets: []Pset{{"mpi://WORLD", []uint32{1}}}},
		"needs a name":           {Size: 4, Psets: []Pset{{"", []uint32{1}}}},
		"a namespace of 5000 by": {Size: 4, Namespace: strings.Repeat("n", 5000)},
	} {
		if _, err := New(opt); !errors.Is(err, framework.ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want ErrConfig with %q", err, want)
		}
	}
}

func TestNew_TwoJobs_HaveDifferentNamespaces(t *testing.T) {
	a, err := New(Options{Size: 1})
	if err != nil {
		t.Fatal(err)
	}
	b, err := New(Options{Size: 1})
	if err != nil {
		t.Fatal(err)
	}
	if a.Namespace() == b.Namespace() || a.token == b.token || len(a.token) < 32 {
		t.Errorf("jobs %s and %s", a.Namespace(), b.Namespace())
	}
	if err := errors.Join(a.Close(), b.Close()); err != nil {
		t.Error(err)
	}
}

func FuzzParsePset(f *testing.F) {
	f.Add("ocean=0-3,7")
	f.Add("a=b=1")
	f.Add("=")
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ParsePset(s)
		if err != nil {
			if !errors.Is(err, framework.ErrConfig) {
				t.Errorf("%q: %v is not an ErrConfig", s, err)
			}
			return
		}
		// A parsed set survives a round trip.
		list := strings.Trim(strings.ReplaceAll(fmt.Sprint(p.Ranks), " ", ","), "[]")
		again, err := ParsePset(p.Name + "=" + list)
		if err != nil || again.Name != p.Name || !slices.Equal(again.Ranks, p.Ranks) {
			t.Errorf("%q: %+v, then %+v, %v", s, p, again, err)
		}
	})
}
