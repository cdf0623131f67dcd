package framework

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// verdicts lists a selection as a golden text.
func verdicts(s *Selection) string {
	var b strings.Builder
	for _, v := range s.Verdicts {
		b.WriteString(v.String() + "\n")
	}
	b.WriteString("chosen")
	for _, c := range s.Chosen {
		b.WriteString(" " + c.Verdict.Name)
	}
	return b.String()
}

func pick(t *testing.T, r *Registry, kind Kind, v *Values) *Selection {
	t.Helper()
	s, err := r.Select(context.Background(), kind, v)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSelect_Verdicts_HaveReasons(t *testing.T) {
	r := example()
	v := defaults(t, r)
	for _, c := range []struct{ list, want string }{
		{"", `btl self: selected
btl shm: selected
btl tcp: unavailable: no interface is up (bring one up)
chosen self shm`},
		{" shm , self ", `btl self: selected
btl shm: selected
btl tcp: not selected: not in list btl= shm , self  (flag --set)
chosen shm self`},
		{"^tcp", `btl self: selected
btl shm: selected
btl tcp: not selected: excluded by btl=^tcp (flag --set)
chosen self shm`},
		{"^self,tcp", `btl self: not selected: excluded by btl=^self,tcp (flag --set)
btl shm: selected
btl tcp: not selected: excluded by btl=^self,tcp (flag --set)
chosen shm`},
	} {
		s := pick(t, r, BTL, set(t, v, "btl", c.list))
		if d := cmp.Diff(c.want, verdicts(s)); d != "" {
			t.Errorf("btl=%q: %s", c.list, d)
		}
		for _, ch := range s.Chosen {
			if p, ok := ch.Params.(*shmParams); ch.Verdict.Name == "shm" && (!ok || p.Slots != 8) {
				t.Errorf("parameters of shm are %v", ch.Params)
			}
		}
	}
}

func TestSelect_ExplicitList_IsBinding(t *testing.T) {
	r := example()
	v := defaults(t, r)
	for _, c := range []struct {
		kind Kind
		list string
		says []string
	}{
		{PML, "cm", []string{"pml=cm (flag --set)", "cm is not built: no MTL is compiled in (use pml=ob1)", "usable here: ob1, ucx"}},
		{PML, "ob1,cm", []string{"cm is not built"}},
		{MTL, "ofi", []string{"ofi is not built: this version has no libfabric MTL", "no mtl component is usable here"}},
		{BTL, "self,tcp", []string{"tcp is unavailable: no interface is up", "usable here: self, shm"}},
		{BTL, "smh", []string{`unknown btl component "smh"`, "nearest known name is shm", "self, shm, tcp"}},
		{BTL, "^tpc", []string{`unknown btl component "tpc"`, "nearest known name is tcp"}},
		{Coll, "basic", []string{`unknown coll component "basic"`, "this program has none"}},
		{BTL, "self,^tcp", []string{"one ^ at the start"}},
		{BTL, "^^tcp", []string{"one ^ at the start"}},
		{BTL, "^", []string{"a name is missing"}},
		{BTL, "self,,shm", []string{"a name is missing"}},
		{BTL, "self,self", []string{"appears twice"}},
	} {
		vals := set(t, v, string(c.kind), c.list)
		_, err := r.Select(context.Background(), c.kind, vals)
		wantError(t, err, ErrConfig, append(c.says, "flag --set")...)
		// It is binding even if no component uses the framework.
		_, err = r.SelectAll(context.Background(), vals)
		wantError(t, err, ErrConfig, c.says...)
	}
	// A component that is not built may be excluded.
	if s := pick(t, r, PML, set(t, v, "pml", "^cm")); len(s.Chosen) != 2 {
		t.Error(verdicts(s))
	}
}

func TestSelect_ManifestList_IsPreference(t *testing.T) {
	r := example()
	r.SetDefault("pml", "cm,ucx,ob1")
	r.SetDefault("btl", "tcp,shm")
	v := defaults(t, r)
	s := pick(t, r, PML, v)
	c, err := s.TakeFirst()
	if err != nil || c.Verdict.Name != "ucx" {
		t.Fatalf("chose %v, %v", c.Verdict, err)
	}
	want := `pml ob1: not selected: after ucx in list pml=cm,ucx,ob1 (components.yaml)
pml ucx: selected
pml cm: not built: no MTL is compiled in (use pml=ob1)
chosen ucx`
	if d := cmp.Diff(want, verdicts(s)); d != "" {
		t.Error(d)
	}
	if err := pick(t, r, BTL, v).Fail("shm", errors.New("no /dev/shm")); err != nil {
		t.Errorf("a preference bound: %v", err)
	}
}

func TestOne_Verdicts_NameHigherPriority(t *testing.T) {
	r := example()
	r.Register(comp(PML, "zero", 30))
	s := pick(t, r, PML, defaults(t, r))
	if _, err := s.TakeFirst(); err != nil {
		t.Fatal(err)
	}
	want := `pml ob1: selected
pml zero: not selected: priority 30 = ob1's, whose name comes first
pml ucx: not selected: priority 20 < ob1's 30
pml cm: not built: no MTL is compiled in (use pml=ob1)
chosen ob1`
	if d := cmp.Diff(want, verdicts(s)); d != "" {
		t.Error(d)
	}
}

func TestFail_NotRequested_FallsBack(t *testing.T) {
	r := example()
	v := defaults(t, r)
	cause := errors.New("the segment is gone")
	s := pick(t, r, PML, v)
	if err := s.Fail("ob1", cause); err != nil {
		t.Fatal(err)
	}
	if c, err := s.TakeFirst(); err != nil || c.Verdict.Name != "ucx" {
		t.Errorf("chose %v, %v", c.Verdict, err)
	}
	if err := s.Fail("ob1", cause); err != nil || s.Verdicts[0].Status != StatusFailed {
		t.Errorf("failed twice: %v, %v", err, s.Verdicts[0])
	}
	if err := s.Fail("ucx", cause); err != nil {
		t.Fatal(err)
	}
	_, err := s.TakeFirst()
	wantError(t, err, ErrUnsupported, "ob1 failed: the segment is gone", "ucx failed", "cm is not built")

	s = pick(t, r, PML, set(t, v, "pml", "ob1"))
	err = s.Fail("ob1", cause)
	wantError(t, err, ErrConfig, "pml=ob1 (flag --set)", "the segment is gone")
	if !errors.Is(err, cause) {
		t.Errorf("%v does not wrap the cause", err)
	}
}

func TestEmpty_NoneUsable_NamesEachReason(t *testing.T) {
	r := example()
	_, err := pick(t, r, MTL, defaults(t, r)).TakeFirst()
	wantError(t, err, ErrUnsupported, "no mtl component is usable", "ofi is not built")
	_, err = pick(t, r, Coll, defaults(t, r)).TakeFirst()
	wantError(t, err, ErrUnsupported, "no coll component")
	_, err = pick(t, r, PML, set(t, defaults(t, r), "pml", "^ob1,ucx")).TakeFirst()
	wantError(t, err, ErrConfig, "ob1 is not selected: excluded by pml=^ob1,ucx (flag --set)")
}

func TestProbe_Panics_IsVerdict(t *testing.T) {
	r := example()
	bad := comp(BTL, "bad", 1)
	bad.probe = func(context.Context, any) Verdict {
		var devices []Verdict
		return devices[len(devices)]
	}
	r.Register(bad)
	s := pick(t, r, BTL, defaults(t, r))
	v := s.verdict("bad")
	if v.Status != StatusFailed || !strings.Contains(v.Reason, "panicked at selection_test.go:") || !strings.Contains(v.Hint, "FERRY_BTL=^bad") {
		t.Errorf("verdict %v", v)
	}
	if len(s.Chosen) != 2 {
		t.Error(verdicts(s))
	}
}

func TestProbe_Hangs_IsVerdict(t *testing.T) {
	r := example()
	r.probeLimit = time.Millisecond
	release := make(chan struct{})
	defer close(release)
	slow := comp(BTL, "slow", 99)
	slow.probe = func(context.Context, any) Verdict { <-release; return Usable() } // deaf to its context
	r.Register(slow)
	s := pick(t, r, BTL, set(t, defaults(t, r), "btl", "^tcp"))
	if v := s.verdict("slow"); v.Status != StatusFailed || !strings.Contains(v.Reason, "did not return within 1ms") {
		t.Errorf("verdict %v", v)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	mine := errors.New("mine")
	cancel(mine)
	if _, err := r.Select(ctx, BTL, defaults(t, r)); !errors.Is(err, mine) {
		t.Errorf("canceled: %v", err)
	}
}

func TestProbe_OneSlow_OthersComplete(t *testing.T) {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	ready := make(chan Verdict, 1)
	ready <- Usable()
	if v, err := awaitProbe(context.Background(), over, ready, time.Second); err != nil || v.Status != StatusUsable {
		t.Errorf("%v, %v", v, err)
	}
}

func TestProbe_ForgedVerdict_IsCorrected(t *testing.T) {
	r := NewRegistry()
	forger := comp(BTL, "forger", 1)
	forger.probe = func(context.Context, any) Verdict { return Verdict{Status: StatusSelected, Name: "shm"} }
	mute := comp(BTL, "mute", 0)
	mute.probe = func(context.Context, any) Verdict { return Verdict{Status: StatusUnavailable} }
	r.Register(forger)
	r.Register(mute)
	want := "btl forger: failed: its probe returned the status \"selected\", which a probe cannot return\n" +
		"btl mute: unavailable: its probe gave no reason\nchosen"
	if d := cmp.Diff(want, verdicts(pick(t, r, BTL, defaults(t, r)))); d != "" {
		t.Error(d)
	}
}

func TestSelect_Excluded_IsNotProbed(t *testing.T) {
	r := example()
	bomb := comp(BTL, "bomb", 1)
	bomb.probe = func(context.Context, any) Verdict { t.Error("probed"); return Usable() }
	r.Register(bomb)
	pick(t, r, BTL, set(t, defaults(t, r), "btl", "^bomb"))
	pick(t, r, BTL, set(t, defaults(t, r), "btl", "shm"))
}

func TestSurvey_List_IsIgnored(t *testing.T) {
	r := example()
	got, err := r.Survey(context.Background(), BTL, set(t, defaults(t, r), "btl", "self"))
	if err != nil || len(got) != 3 || got[1].Status != StatusUsable || got[2].Status != StatusUnavailable {
		t.Errorf("%v, %v", got, err)
	}
}

func FuzzSelectionList(f *testing.F) {
	for _, s := range []string{"", "^", "shm", "^tcp,self", "shm,^self", " , ", "cm", "nosuch", "^^"} {
		f.Add(s)
	}
	r := example()
	v, err := r.Defaults()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		w, err := v.With("fuzz", map[string]string{"btl": text})
		if err != nil {
			t.Fatalf("a list is any string until selection: %v", err)
		}
		s, err := r.Select(context.Background(), BTL, w)
		if err != nil {
			if !errors.Is(err, ErrConfig) {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		for _, v := range s.Verdicts {
			if v.Status != StatusSelected && v.Reason == "" {
				t.Fatalf("%q: %v has no reason", text, v)
			}
		}
	})
}
