package coll_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/coll/basic"
	"github.com/ferrympi/ferry/coll/tuned"
	"github.com/ferrympi/ferry/components/core"
	"github.com/ferrympi/ferry/framework"
)

// selected returns the selection with these values of coll.force and coll, and the parsed force.
func selected(t *testing.T, set map[string]string) (*framework.Selection, *coll.Force, error) {
	t.Helper()
	r := framework.NewRegistry()
	r.Register(basic.Component())
	r.Register(tuned.Component())
	core.Register(r)
	values, err := r.Defaults()
	if err == nil {
		values, err = values.With("test", set)
	}
	if err != nil {
		t.Fatal(err)
	}
	s, err := r.SelectAll(t.Context(), values)
	if err != nil {
		t.Fatal(err)
	}
	f, err := core.Forced(values, s)
	return s[framework.Coll], f, err
}

func TestParseForce_UnknownName_ErrorHasNearest(t *testing.T) {
	for force, want := range map[string]string{
		"alreduce=tuned":                        `there is no operation "alreduce"; the nearest is "allreduce"`,
		"allreduce":                             "want OPERATION=COMPONENT",
		"allreduce=tunde":                       `the nearest is "tuned"`,
		"allreduce=tuned:rnig":                  `coll tuned has no algorithm for allreduce named "rnig"; the nearest is "ring"`,
		"allreduce=tuned:":                      `the nearest is "ring"`,
		"scan=tuned":                            "coll tuned has no scan",
		"allreduce=tuned,bcast=basic,bcast=shm": "bcast appears twice",
		"=":                                     "there is no operation",
	} {
		_, _, err := selected(t, map[string]string{"coll.force": force})
		if !errors.Is(err, framework.ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %s", force, err, want)
		}
	}
	_, _, err := selected(t, map[string]string{"coll.force": "bcast=tuned", "coll": "basic"})
	if !errors.Is(err, framework.ErrConfig) || !strings.Contains(err.Error(), "not selected") {
		t.Errorf("a component that is not selected: %v", err)
	}
}

// The named algorithm, or else one of the component's, serves all sizes. Other operations are
// unaffected.
func TestNewTable_Forced_AtEverySize(t *testing.T) {
	for force, want := range map[string]string{
		"":                                     "allgather basic:small basic:small tuned:mid tuned:large, bcast basic:small",
		"allgather=tuned:rare":                 "allgather tuned:rare tuned:rare tuned:rare tuned:rare, bcast basic:small",
		"allgather=tuned":                      "allgather tuned:mid tuned:mid tuned:mid tuned:large, bcast basic:small",
		"allgather=basic":                      "allgather basic:small basic:small basic:small basic:small, bcast basic:small",
		"allgather=elsewhere":                  "allgather basic:small basic:small tuned:mid tuned:large, bcast basic:small",
		"bcast=tuned:rare,allgather=basic:end": "allgather basic:end basic:end basic:end basic:end, bcast tuned:rare",
	} {
		var f coll.Force
		for _, entry := range strings.FieldsFunc(force, func(r rune) bool { return r == ',' }) {
			name, what, _ := strings.Cut(entry, "=")
			component, algorithm, _ := strings.Cut(what, ":")
			op := coll.Bcast
			if name == "allgather" {
				op = coll.Allgather
			}
			f[op] = coll.Forced{Component: component, Algorithm: algorithm}
		}
		table := coll.NewTable([]coll.ComponentOffer{
			{Component: "tuned", Offer: &coll.Offer{Priority: 20, Algorithms: []coll.Algorithm{
				{Op: coll.Allgather, Name: "rare", From: coll.Never},
				{Op: coll.Bcast, Name: "rare", From: coll.Never},
				{Op: coll.Allgather, Name: "mid", From: 100, Below: 1000},
				{Op: coll.Allgather, Name: "large", From: 1000},
			}}},
			{Component: "basic", Offer: &coll.Offer{Priority: 10, Algorithms: []coll.Algorithm{
				{Op: coll.Allgather, Name: "small", Below: 200},
				{Op: coll.Allgather, Name: "end", From: coll.Never},
				{Op: coll.Bcast, Name: "small"},
			}}},
		}, &f)
		got := "allgather"
		for _, size := range []int{0, 99, 100, 5000} {
			c := table.For(coll.Allgather, size)
			got += fmt.Sprintf(" %s:%s", c.Component, c.Algorithm.Name)
		}
		c := table.For(coll.Bcast, 8)
		if got += fmt.Sprintf(", bcast %s:%s", c.Component, c.Algorithm.Name); got != want {
			t.Errorf("%s: %s; want %s", force, got, want)
		}
	}
}
