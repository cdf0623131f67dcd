package framework

import (
	"context"
	"strings"
	"testing"
)

// requiring is a PML that requires components of other frameworks.
type requiring struct {
	Component
	needs []Requirement
}

func (o requiring) Requires(any) []Requirement { return o.needs }

// networks returns a registry with pml ob1 over BTLs, and cm over the MTLs ofi and mem. Only a request selects cm.
func networks(ofi Verdict) *Registry {
	r := NewRegistry()
	r.Register(requiring{comp(PML, "ob1", 20), []Requirement{{Kind: BTL, All: true}}})
	r.Register(requiring{comp(PML, "cm", 10), []Requirement{{Kind: MTL}, {Kind: PML, Node: true}}})
	for _, name := range []string{"ofi", "mem"} {
		c := comp(MTL, name, 10)
		c.params = func() any { return new(shmParams) }
		if name == "ofi" {
			c.probe = func(context.Context, any) Verdict { return ofi }
		}
		r.Register(c)
	}
	r.SetDefault("pml", "^cm")
	return r
}

func TestSelectAll_MTLRequest_SelectsItsPML(t *testing.T) {
	const (
		flag = "flag --set"
		env  = "environment FERRY_X"
		file = "file /etc/ferry/config.yaml"
		prog = "WithParam"
	)
	for name, c := range map[string]struct {
		set []Setting
		ofi Verdict
		// PMLs. Empty for an error.
		want string
		says []string // of the error, or of the verdict on ob1
	}{
		"nothing":       {want: "ob1"},
		"an mtl":        {set: []Setting{{"mtl", "ofi", flag, false}}, want: "cm", says: []string{"pml=cm (for mtl=ofi (flag --set))"}},
		"its parameter": {set: []Setting{{"mtl.ofi.slots", "9", env, false}}, want: "cm", says: []string{"for mtl.ofi.slots=9 (environment FERRY_X)"}},
		"its parameter, and it is not there": {
			set: []Setting{{"mtl.ofi.slots", "9", flag, false}}, ofi: Unavailable("no library", ""),
			says: []string{"mtl=ofi (for mtl.ofi.slots=9 (flag --set))", "no library"},
		},
		"as it is anyway":      {set: []Setting{{"mtl.ofi.slots", "8", prog, false}}, want: "cm"},
		"no mtl in particular": {set: []Setting{{"mtl", "^mem", flag, false}}, want: "ob1"},
		"an empty list":        {set: []Setting{{"mtl", "", flag, false}}, want: "ob1"},
		"in a file":            {set: []Setting{{"mtl", "ofi", file, true}, {"mtl.ofi.slots", "9", file, true}}, want: "ob1"},
		"in a file, of what is not there": {
			set: []Setting{{"mtl", "ofi", file, true}}, ofi: Unavailable("no library", ""), want: "ob1",
		},
		"in a file, and a pml that uses it": {
			set: []Setting{{"mtl", "ofi", file, true}, {"pml", "cm", flag, false}}, want: "cm",
		},
		"ruled out":                   {set: []Setting{{"mtl.ofi.slots", "9", env, false}, {"mtl", "^ofi", flag, false}}, want: "ob1"},
		"another is chosen in a file": {set: []Setting{{"mtl.ofi.slots", "9", env, false}, {"mtl", "mem", file, true}}, want: "ob1"},
		"what is not there": {
			set: []Setting{{"mtl", "ofi", flag, false}}, ofi: Unavailable("no library", ""), says: []string{"mtl=ofi (flag --set)", "no library"},
		},
		"beside a pml that uses it":    {set: []Setting{{"mtl", "ofi", flag, false}, {"pml", "cm,ob1", env, false}}, want: "cm,ob1"},
		"beside the other pml":         {set: []Setting{{"mtl", "ofi", flag, false}, {"pml", "ob1", env, false}}, says: []string{"mtl=ofi (flag --set)", "pml=ob1 (environment FERRY_X)"}},
		"beside the other, in a file":  {set: []Setting{{"mtl.ofi.slots", "9", flag, false}, {"pml", "ob1", file, true}}, says: []string{"mtl.ofi.slots=9 (flag --set)", "pml=ob1 (file /etc"}},
		"where all but the other go":   {set: []Setting{{"mtl", "ofi", flag, false}, {"pml", "^cm", env, false}}, says: []string{"mtl=ofi (flag --set)", "pml=^cm (environment FERRY_X)"}},
		"where only the other is left": {set: []Setting{{"mtl", "ofi", flag, false}, {"pml", "^ob1", env, false}}, want: "cm"},
	} {
		t.Run(name, func(t *testing.T) {
			r := networks(c.ofi)
			v, err := defaults(t, r).Set(c.set...)
			if err != nil {
				t.Fatal(err)
			}
			all, err := r.SelectAll(t.Context(), v)
			if c.want == "" {
				wantError(t, err, ErrConfig, c.says...)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, x := range all[PML].Chosen {
				got = append(got, x.Verdict.Name)
			}
			if strings.Join(got, ",") != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
			for _, says := range c.says {
				if v := all[PML].verdict("ob1"); !strings.Contains(v.Reason, says) {
					t.Errorf("ob1: %v, want %q", v, says)
				}
			}
		})
	}
}

func TestSelectAll_MTLRequestWithoutPML_ReturnsErrConfig(t *testing.T) {
	r := NewRegistry()
	r.Register(comp(PML, "ob1", 20))
	r.Register(comp(MTL, "ofi", 10))
	_, err := r.SelectAll(t.Context(), set(t, defaults(t, r), "mtl", "ofi"))
	wantError(t, err, ErrConfig, "mtl=ofi (flag --set)", "no pml that uses one")
}

func TestSelectAll_UnknownNameBesideAContradiction_IsReportedFirst(t *testing.T) {
	r := networks(Verdict{})
	for _, c := range []struct {
		set  []Setting
		want string
	}{
		{[]Setting{{"mtl.ofi.slots", "9", "flag --set", false}, {"pml", "ob2", "flag --set", false}}, `unknown pml component "ob2"; the nearest known name is ob1`},
		{[]Setting{{"mtl", "off", "flag --set", false}, {"pml", "ob1", "flag --set", false}}, `unknown mtl component "off"; the nearest known name is ofi`},
		{[]Setting{{"mtl", "ofi", "flag --set", false}, {"pml", "ob1", "flag --set", false}, {"coll", "^x", "flag --set", false}}, `unknown coll component "x"`},
	} {
		v, err := defaults(t, r).Set(c.set...)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.SelectAll(t.Context(), v); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %s", c.set, err, c.want)
		}
	}
}
