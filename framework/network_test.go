package framework

import (
	"context"
	"strings"
	"testing"
)

func TestPreferNetwork_SeveralNodes_IsFirst(t *testing.T) {
	net := Usable()
	net.Network = "mlx5_0"
	gone := Unavailable("no library", "")
	gone.Network = "mlx5_0"
	for name, c := range map[string]struct {
		set   []Setting
		ofi   Verdict
		nodes bool
		want  string
		says  string // the verdict on cm, or on ob1 where cm is first and TakeFirst has decided
	}{
		"several nodes":        {ofi: net, nodes: true, want: "cm,ob1", says: "mlx5_0"},
		"one node":             {ofi: net, want: "ob1", says: "on this machine"},
		"no network":           {ofi: Usable(), nodes: true, want: "ob1"},
		"not usable":           {ofi: gone, nodes: true, want: "ob1"},
		"another pml":          {set: []Setting{{"pml", "ob1", "file /etc/ferry/config.yaml", true}}, ofi: net, nodes: true, want: "ob1"},
		"all pmls":             {set: []Setting{{"pml", "", "flag --set", false}}, ofi: net, nodes: true, want: "ob1,cm"},
		"an mtl is asked for":  {set: []Setting{{"mtl", "ofi", "flag --set", false}}, ofi: net, nodes: true, want: "cm"},
		"the mtl is ruled out": {set: []Setting{{"mtl", "^ofi", "flag --set", false}}, ofi: net, nodes: true, want: "ob1"},
	} {
		t.Run(name, func(t *testing.T) {
			r := networks(c.ofi)
			v, err := defaults(t, r).Set(c.set...)
			if err != nil {
				t.Fatal(err)
			}
			all, err := r.SelectAll(t.Context(), v)
			if err != nil {
				t.Fatal(err)
			}
			preferred, err := r.PreferNetwork(t.Context(), v, all, c.nodes)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, x := range all[PML].Chosen {
				got = append(got, x.Verdict.Name)
			}
			if strings.Join(got, ",") != c.want || preferred != (c.want == "cm,ob1") {
				t.Errorf("%s, preferred %t, want %s", got, preferred, c.want)
			}
			if v := all[PML].verdict("cm"); !strings.Contains(v.Reason, c.says) {
				t.Errorf("cm: %v", v)
			}
			if !preferred {
				return
			}
			if _, err := all[PML].TakeFirst(); err != nil {
				t.Fatal(err)
			}
			if v := all[PML].verdict("ob1"); !strings.Contains(v.Reason, "cm is preferred") || !strings.Contains(v.Reason, "mlx5_0") {
				t.Errorf("ob1: %v", v)
			}
		})
	}
}

func TestSelect_SuitedMTL_IsFirst(t *testing.T) {
	for list, want := range map[string]string{"": "ucx,ofi", "ofi,ucx": "ofi,ucx", "^mem": "ucx,ofi"} {
		r := NewRegistry()
		for i, name := range []string{"ofi", "ucx", "mem"} {
			c := comp(MTL, name, 20-i)
			c.probe = func(context.Context, any) Verdict {
				v := Usable()
				v.Network, v.Suits = "mlx5_0", name == "ucx"
				return v
			}
			r.Register(c)
		}
		v, err := defaults(t, r).Set(Setting{"mtl", list, "flag --set", list != ""})
		if err != nil {
			t.Fatal(err)
		}
		s, err := r.Select(t.Context(), MTL, v)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, x := range s.Chosen {
			got = append(got, x.Verdict.Name)
		}
		if !strings.HasPrefix(strings.Join(got, ","), want) {
			t.Errorf("%q: %v, want %s", list, got, want)
		}
		if v := s.verdict("ucx"); list == "" && !strings.Contains(v.Reason, "mlx5_0") {
			t.Errorf("%v", v)
		}
	}
}
