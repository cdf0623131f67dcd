package framework

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// fake is a component with behavior set by a test.
type fake struct {
	info   Info
	params func() any
	probe  func(context.Context, any) Verdict
}

func (f fake) Info() Info { return f.info }
func (f fake) Params() any {
	if f.params == nil {
		return nil
	}
	return f.params()
}
func (f fake) Probe(ctx context.Context, params any) Verdict {
	if f.probe == nil {
		return Usable()
	}
	return f.probe(ctx, params)
}

func comp(kind Kind, name string, priority int) fake {
	return fake{info: Info{Kind: kind, Name: name, Priority: priority}}
}

type shmParams struct {
	Eager   Size          `param:"eager_limit" default:"4KiB" min:"64" max:"1MiB" level:"tuner" scope:"process" doc:"longest eager message"`
	Slots   int           `param:"slots" default:"8" min:"1" level:"tuner" scope:"process" doc:"slots"`
	Big     int64         `param:"big" default:"-5" level:"developer" scope:"process" doc:"big"`
	Rate    float64       `param:"rate" default:"0.5" min:"0" max:"1" level:"developer" scope:"session" doc:"rate"`
	Copy    string        `param:"copy" former:"way" default:"auto" choices:"auto,cma,pipe" level:"user" scope:"process" doc:"copy"`
	Devices []string      `param:"devices" default:"" level:"user" scope:"process" doc:"devices"`
	Wait    time.Duration `param:"wait" default:"250ms" min:"0s" level:"user" scope:"session" doc:"wait"`
	Pin     bool          `param:"pin" default:"true" level:"user" scope:"process" doc:"pin"`
	Token   string        `param:"token" default:"" level:"developer" scope:"process" secret:"true" doc:"token"`
	Extra   chan int      `param:"-"`
}

// example is a registry as a program has it.
func example() *Registry {
	r := NewRegistry()
	shm := comp(BTL, "shm", 30)
	shm.params = func() any { return new(shmParams) }
	r.Register(shm)
	r.Register(comp(BTL, "self", 50))
	tcp := comp(BTL, "tcp", 10)
	tcp.probe = func(context.Context, any) Verdict {
		return Unavailable("no interface is up", "bring one up")
	}
	r.Register(tcp)
	r.Register(comp(PML, "ob1", 30))
	r.Register(comp(PML, "ucx", 20))
	r.NotBuilt(PML, "cm", "no MTL is compiled in", "use pml=ob1")
	r.NotBuilt(MTL, "ofi", "this version has no libfabric MTL", "")
	return r
}

func defaults(t testing.TB, r *Registry) *Values {
	t.Helper()
	v, err := r.Defaults()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func set(t testing.TB, v *Values, name, text string) *Values {
	t.Helper()
	w, err := v.With("flag --set", map[string]string{name: text})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// wantError checks the sentinel and that the message holds each of parts.
func wantError(t *testing.T, err, sentinel error, parts ...string) {
	t.Helper()
	if !errors.Is(err, sentinel) {
		t.Fatalf("error %v does not answer %v", err, sentinel)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q does not say %q", err, p)
		}
	}
}

func wantPanic(t *testing.T, part string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		p := recover()
		if p == nil || !strings.Contains(fmt.Sprint(p), part) {
			t.Errorf("panic %v does not say %q", p, part)
		}
	}()
	f()
}

func TestSize_Text_IsExact(t *testing.T) {
	for _, c := range []struct {
		size Size
		text string
	}{{0, "0"}, {1, "1"}, {1000, "1000"}, {1536, "1536"}, {4096, "4KiB"}, {3 << 20, "3MiB"}, {1<<20 + 1, "1048577"}, {5 << 30, "5GiB"}, {1 << 62, "4194304TiB"}} {
		if got := c.size.String(); got != c.text {
			t.Errorf("Size(%d) is %q, want %q", int64(c.size), got, c.text)
		}
	}
	for text, want := range map[string]Size{"64kib": 64 << 10, " 2 MiB ": 2 << 20, "12B": 12, "9223372036854775807": 1<<63 - 1} {
		if got, err := ParseSize(text); err != nil || got != want {
			t.Errorf("ParseSize(%q) = %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "KiB", "-1", "1.5KiB", "4KB", "4K", "9223372036854775808", "8388608TiB", "1 2", "+4", "0x10"} {
		if got, err := ParseSize(text); err == nil {
			t.Errorf("ParseSize(%q) = %d, want an error", text, got)
		}
	}
}

func FuzzParseSizeRoundTrips(f *testing.F) {
	for _, s := range []string{"0", "4KiB", "9223372036854775807", "8388607TiB", " 1 b", "1e3"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		size, err := ParseSize(text)
		if err != nil {
			return
		}
		again, err := ParseSize(size.String())
		if size < 0 || err != nil || again != size {
			t.Fatalf("%q is %d, whose text %q is %d, %v", text, size, size, again, err)
		}
	})
}

func TestDecode_EveryType_IsFilled(t *testing.T) {
	v := defaults(t, example())
	var got shmParams
	if err := v.Decode("btl.shm", &got); err != nil {
		t.Fatal(err)
	}
	want := shmParams{Eager: 4096, Slots: 8, Big: -5, Rate: 0.5, Copy: "auto", Wait: 250 * time.Millisecond, Pin: true}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("defaults: got %+v, want %+v", got, want)
	}
	for name, text := range map[string]string{"eager_limit": "64KiB", "slots": " 3 ", "big": "7", "rate": "1", "copy": "cma", "devices": "a, b", "wait": "2s", "pin": "off", "token": "s"} {
		v = set(t, v, "btl.shm."+name, text)
	}
	got = shmParams{}
	if err := v.Decode("btl.shm", &got); err != nil {
		t.Fatal(err)
	}
	want = shmParams{Eager: 64 << 10, Slots: 3, Big: 7, Rate: 1, Copy: "cma", Devices: []string{"a", "b"}, Wait: 2 * time.Second, Token: "s"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("set: got %+v, want %+v", got, want)
	}
	var filled shmParams
	FillDefaults(&filled)
	if filled.Eager != 4096 || filled.Wait != 250*time.Millisecond {
		t.Errorf("FillDefaults: %+v", filled)
	}
	wantError(t, v.Decode("btl.tcp", &got), ErrConfig, "btl.tcp.eager_limit is not registered")
	wantError(t, v.Decode("btl.shm", got), ErrConfig, "pointer to a struct")
}

func TestSet_InvalidValue_NamesParameterTypeAndSource(t *testing.T) {
	v := defaults(t, example())
	for _, c := range []struct{ name, text, says string }{
		{"btl.shm.eager_limit", "4KB", `bad value "4KB": want a size`},
		{"btl.shm.eager_limit", "32", "at least 64, at most 1MiB"},
		{"btl.shm.eager_limit", "2MiB", "at most 1MiB"},
		{"btl.shm.slots", "0x3", "a whole number, at least 1"},
		{"btl.shm.slots", "0", "at least 1"},
		{"btl.shm.rate", "nan", "a number"},
		{"btl.shm.rate", "1.01", "at most 1"},
		{"btl.shm.copy", "xpmem", "one of auto, cma, pipe"},
		{"btl.shm.wait", "10", "a duration"},
		{"btl.shm.wait", "-1ms", "at least 0s"},
		{"btl.shm.pin", "maybe", "true or false"},
	} {
		_, err := v.With("file /etc/x.yaml", map[string]string{c.name: c.text})
		wantError(t, err, ErrConfig, c.name, "file /etc/x.yaml", c.says)
	}
}

func TestSet_FormerName_ErrorHasPresentName(t *testing.T) {
	_, err := defaults(t, example()).With("flag --set", map[string]string{"btl.shm.way": "cma"})
	wantError(t, err, ErrConfig, `"btl.shm.way"`, "flag --set", "it is now btl.shm.copy")
}

func TestSet_UnknownParameter_SuggestsNearest(t *testing.T) {
	_, err := defaults(t, example()).With("flag --set", map[string]string{"btl.shm.eagr_limit": "1KiB"})
	wantError(t, err, ErrConfig, `"btl.shm.eagr_limit"`, "flag --set", "nearest known name is btl.shm.eager_limit")
}

func TestSecret_Messages_OmitValue(t *testing.T) {
	r := NewRegistry()
	r.RegisterParams(ParamsOf("bootstrap", new(struct {
		Key string `param:"key" default:"auto" choices:"auto,none" secret:"true" level:"developer" scope:"process" doc:"key"`
	}))...)
	v := defaults(t, r)
	_, err := v.With("environment FERRY_BOOTSTRAP_KEY", map[string]string{"bootstrap.key": "hunter2"})
	wantError(t, err, ErrConfig, "bootstrap.key")
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the secret is in %q", err)
	}
	if s := set(t, v, "bootstrap.key", "none").String(); s != "bootstrap.key=(secret) (flag --set)" {
		t.Errorf("String: %q", s)
	}
}

func TestValues_Set_DoesNotChangeReceiver(t *testing.T) {
	v := defaults(t, example())
	w := set(t, v, "btl.shm.slots", "9")
	if got, _ := v.Get("btl.shm.slots"); got != (Value{Text: "8", Source: SourceDefault}) {
		t.Errorf("the original changed: %v", got)
	}
	if got, _ := w.Get("btl.shm.slots"); got != (Value{Text: "9", Source: "flag --set"}) {
		t.Errorf("the copy: %v", got)
	}
	if _, ok := w.Get("nothing"); ok {
		t.Error("Get of an unknown name is ok")
	}
}

func TestDeclared_Parameters_AreCheckedLikeStructs(t *testing.T) {
	specs := []ParamSpec{
		{Name: "window", Type: TypeSize, Default: "4096", Max: "1MiB", Level: LevelTuner, Scope: ScopeProcess, Doc: "window"},
		{Name: "wait", Type: TypeDuration, Default: "90s", Level: LevelUser, Scope: ScopeProcess, Doc: "wait"},
		{Name: "pin", Type: TypeBool, Default: "on", Level: LevelUser, Scope: ScopeProcess, Doc: "pin"},
		{Name: "paths", Type: TypeList, Default: "", Choices: []string{"a", "b"}, Level: LevelUser, Scope: ScopeProcess, Doc: "paths"},
		{Name: "rate", Type: TypeFloat, Default: "1e0", Level: LevelUser, Scope: ScopeProcess, Doc: "rate"},
	}
	remote := comp(BTL, "remote", 99)
	remote.params = func() any { return &Declared{Specs: specs} }
	var probed map[string]string
	remote.probe = func(_ context.Context, params any) Verdict {
		probed = params.(*Declared).Texts
		return Usable()
	}
	r := NewRegistry()
	r.Register(remote)
	v := set(t, set(t, defaults(t, r), "btl.remote.paths", "b, a"), "btl.remote.window", "64kib")
	_, err := v.With("flag --set", map[string]string{"btl.remote.paths": "c"})
	wantError(t, err, ErrConfig, "btl.remote.paths", "list of a, b")
	s, err := r.Select(t.Context(), BTL, v)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"window": "64KiB", "wait": "1m30s", "pin": "true", "paths": "b,a", "rate": "1"}
	for who, got := range map[string]map[string]string{"Probe": probed, "Open": s.Chosen[0].Params.(*Declared).Texts} {
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s gets %s", who, d)
		}
	}
	if specs[0].Name != "window" {
		t.Error("registration changed the component's own descriptions")
	}
	specs[0].Type = "colour"
	wantPanic(t, `type "colour"`, func() { NewRegistry().Register(remote) })
	if err := specs[0].Check(); err == nil {
		t.Error("a host of components can't find out before it registers one")
	}
}

func TestDiff_SpellingAndOtherScopes_AreIgnored(t *testing.T) {
	v := defaults(t, example())
	w := set(t, set(t, v, "btl.shm.eager_limit", "4096"), "btl.shm.wait", "1s")
	if d := v.Diff(w, ScopeProcess); d != nil {
		t.Errorf("differ in %v, want nothing", d)
	}
	w = set(t, set(t, w, "btl", "^tcp"), "btl.shm.slots", "2")
	if d := v.Diff(w, ScopeProcess); !cmp.Equal(d, []string{"btl", "btl.shm.slots"}) {
		t.Errorf("differ in %v", d)
	}
	more := example()
	more.Register(comp("osc", "rdma", 1))
	if d := v.Diff(defaults(t, more), ScopeProcess); !cmp.Equal(d, []string{"osc"}) {
		t.Errorf("another registry differs in %v", d)
	}
	if d := defaults(t, more).Diff(v, ScopeProcess); !cmp.Equal(d, []string{"osc"}) {
		t.Errorf("another registry differs in %v", d)
	}
}

func TestSetDefault_BeforeRegistration_Applies(t *testing.T) {
	r := example()
	r.SetDefault("cid.policy", "lazy")
	r.SetDefault("btl.shm.eager_limit", "8KiB")
	_, err := r.Defaults()
	wantError(t, err, ErrConfig, "cid.policy", SourceManifest)
	r.RegisterParams(ParamsOf("cid", new(struct {
		Policy string `param:"policy" default:"auto" choices:"auto,lazy" level:"tuner" scope:"communicator" doc:"policy"`
	}))...)
	v := defaults(t, r)
	for name, want := range map[string]Value{"cid.policy": {Text: "lazy", Source: SourceManifest}, "btl.shm.eager_limit": {Text: "8KiB", Source: SourceManifest}, "btl.shm.slots": {Text: "8", Source: SourceDefault}} {
		if got, _ := v.Get(name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if s, _ := v.Spec("cid.policy"); s.Default != "lazy" || s.DefaultSource != SourceManifest {
		t.Errorf("spec %+v", s)
	}
	r.SetDefault("cid.policy", "eager")
	_, err = r.Defaults()
	wantError(t, err, ErrConfig, "cid.policy", SourceManifest, "one of auto, lazy")
}

func TestRegister_InvalidTags_Panics(t *testing.T) {
	for says, params := range map[string]any{
		"not a pointer":  shmParams{},
		"nil *framework": (*shmParams)(nil),
		`param ""`: &struct {
			X int `default:"9"`
		}{},
		`param "Upper"`: &struct {
			X int `param:"Upper" default:"9"`
		}{},
		"cannot have type": &struct {
			X uint8 `param:"x"`
		}{},
		`level ""`: &struct {
			X int `param:"x" default:"9"`
		}{},
		`scope "world"`: &struct {
			X int `param:"x" level:"user" scope:"world" default:"9"`
		}{},
		"no doc": &struct {
			X int `param:"x" level:"user" scope:"session" default:"9"`
		}{},
		"no default": &struct {
			X int `param:"x" level:"user" scope:"session" doc:"d"`
		}{},
		`default: bad value "a"`: &struct {
			X int `param:"x" level:"user" scope:"session" doc:"d" default:"a"`
		}{},
		`default: bad value "9"`: &struct {
			X int `param:"x" level:"user" scope:"session" doc:"d" default:"9" max:"8"`
		}{},
		`bound "many"`: &struct {
			X int `param:"x" level:"user" scope:"session" doc:"d" default:"9" max:"many"`
		}{},
		`bound "true"`: &struct {
			X bool `param:"x" level:"user" scope:"session" doc:"d" default:"true" max:"true"`
		}{},
		"choices need": &struct {
			X int `param:"x" level:"user" scope:"session" doc:"d" default:"9" choices:"9"`
		}{},
		`secret "very"`: &struct {
			X int `param:"x" level:"user" scope:"session" doc:"d" default:"9" secret:"very"`
		}{},
		"parameter btl.bad.x is regist": &struct {
			X int `param:"x" level:"user" scope:"session" doc:"d" default:"9"`
			Y int `param:"x" level:"user" scope:"session" doc:"d" default:"9"`
		}{},
	} {
		c := comp(BTL, "bad", 1)
		c.params = func() any { return params }
		wantPanic(t, says, func() { NewRegistry().Register(c) })
	}
}

func TestRegister_DuplicateName_Panics(t *testing.T) {
	r := example()
	wantPanic(t, "btl shm is registered twice", func() { r.Register(comp(BTL, "shm", 1)) })
	wantPanic(t, "pml cm is registered twice", func() { r.Register(comp(PML, "cm", 1)) })
	wantPanic(t, "pml ob1 is registered twice", func() { r.NotBuilt(PML, "ob1", "x", "") })
	wantPanic(t, "bad component name", func() { r.Register(comp(BTL, "Shm", 1)) })
	wantPanic(t, "nil component", func() { r.Register(nil) })
	wantPanic(t, `parameter .eager_limit: param ""`, func() { r.RegisterParams(ParamsOf("", new(shmParams))...) })
	wantPanic(t, "btl.shm.eager_limit is registered twice", func() { r.RegisterParams(ParamsOf("btl.shm", new(shmParams))...) })
	wantPanic(t, "share the environment variable FERRY_BTL_SHM_SLOTS", func() {
		r.RegisterParams(ParamsOf("btl", new(struct {
			X int `param:"shm_slots" level:"user" scope:"session" doc:"d" default:"9"`
		}))...)
	})
	wantPanic(t, "cannot begin with select", func() { r.Register(comp("select", "x", 1)) })
	wantPanic(t, "not registered", func() { r.SetPriority(BTL, "tpc", 1) })
	wantPanic(t, "not both registered", func() { r.SetNode(BTL, "self", "tpc") })
	wantPanic(t, "not both registered", func() { r.SetNode(BTL, "tpc", "self") })
}

func TestClone_Register_DoesNotChangeOriginal(t *testing.T) {
	r := example()
	c := r.Clone()
	c.Register(comp(BTL, "ib", 1))
	c.SetPriority(BTL, "shm", 99)
	c.SetNode(BTL, "ib", "shm")
	c.NotBuilt(MTL, "psm2", "x", "")
	c.SetDefault("btl", "shm")
	if _, ok := r.Lookup(BTL, "ib"); ok || r.Components(BTL)[0].Info().Name != "self" || len(r.byPriority(MTL)) != 1 || len(r.manifestDefaults) != 0 {
		t.Error("the original changed with its clone")
	}
	if c.Components(BTL)[0].Info().Name != "shm" {
		t.Error("SetPriority changed nothing")
	}
	if c.Node(BTL, "ib") != "shm" || c.Node(BTL, "shm") != "" {
		t.Error("SetNode says otherwise")
	}
	if !cmp.Equal(defaults(t, r).Names(), defaults(t, example()).Names()) {
		t.Error("the original's parameters changed")
	}
}

func TestEnvParam_RegisteredNames_AreFound(t *testing.T) {
	r := example()
	if name, ok := r.EnvParam("FERRY_BTL_SHM_EAGER_LIMIT"); !ok || name != "btl.shm.eager_limit" {
		t.Errorf("%q, %v", name, ok)
	}
	if name, ok := r.EnvParam("FERRY_MTL"); !ok || name != "mtl" {
		t.Errorf("%q, %v", name, ok)
	}
	if len(r.EnvNames()) != len(defaults(t, r).Names()) {
		t.Error("a parameter has no variable")
	}
}

func TestDecode_ReadsTag_UsesOtherParameter(t *testing.T) {
	type params struct {
		Own  string `param:"own" default:"x" level:"user" scope:"process" doc:"its own"`
		Pin  bool   `reads:"btl.shm.pin"`
		None string `reads:"btl.none.at_all"`
	}
	if specs := ParamsOf("btl.other", new(params)); len(specs) != 1 {
		t.Errorf("it declares %+v", specs)
	}
	r := example()
	r.RegisterParams(ParamsOf("btl.other", new(params))...)
	v := set(t, defaults(t, r), "btl.shm.pin", "on")
	got := params{None: "as it was"}
	if err := v.Decode("btl.other", &got); err != nil || got != (params{"x", true, "as it was"}) {
		t.Errorf("%+v, %v", got, err)
	}
	var wrong struct {
		Pin time.Duration `reads:"btl.shm.pin"`
	}
	wantError(t, v.Decode("btl.other", &wrong), ErrConfig, "Pin", "btl.shm.pin", "bool")
}
