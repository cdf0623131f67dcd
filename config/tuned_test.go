package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/components/core"
	"github.com/ferrympi/ferry/config/tuned"
	"github.com/ferrympi/ferry/framework"
)

// tunable is a registry as programs have it, with the parameters of registry.
func tunable() *framework.Registry {
	r := registry()
	core.Register(r)
	return r
}

// keep writes a result of `ferry tune` for this machine, and returns the
// environment in which it is found, and the file.
func keep(t testing.TB, change func(*tuned.Result), params ...tuned.Param) (environ []string, file string) {
	t.Helper()
	cache := t.TempDir()
	dir := tuned.Dir(cache, "")
	if err := tuned.Prepare(dir); err != nil {
		t.Fatal(err)
	}
	r := &tuned.Result{Format: tuned.Format, Machine: tuned.ThisMachine(), Measured: time.Now(), Params: params}
	if change != nil {
		change(r)
	}
	file = tuned.ThisMachine().File(dir)
	if err := r.Write(file); err != nil {
		t.Fatal(err)
	}
	return []string{"XDG_CACHE_HOME=" + cache}, file
}

var eager = tuned.Param{Name: "btl.shm.eager_limit", Default: "4KiB", Value: "8KiB", Gain: 0.1}

func loadTuned(t testing.TB, opt Options) (*framework.Values, Tuned) {
	t.Helper()
	var got Tuned
	calls := 0
	opt.Tuned = func(s Tuned) { got, calls = s, calls+1 }
	v, err := Load(tunable(), opt)
	if err != nil {
		t.Fatal(err)
	}
	if calls != 1 {
		t.Fatalf("told %d times what became of the file", calls)
	}
	return v, got
}

func TestTunedValuesAreStrongerThanDefaultsOnly(t *testing.T) {
	opt := hermetic()
	var file string
	opt.Environ, file = keep(t, nil, eager,
		tuned.Param{Name: "btl.shm.name", Default: "other", Value: "tuned"}, // components.yaml has another default still
		tuned.Param{Name: "btl.shm.rate", Default: "1", Value: "1"},
		tuned.Param{Name: "btl.tcp.window", Default: "1", Value: "2"}) // of a component that this program doesn't have
	want := func(name, text, source string) {
		t.Helper()
		v, state := loadTuned(t, opt)
		if got := get(v, name); got != (framework.Value{Text: text, Source: source, Standing: strings.HasPrefix(source, "file ") || source == "tuned"}) {
			t.Errorf("%s is %v, want %s from %s", name, got, text, source)
		}
		if state.File != file || state.Result == nil || state.Err != nil || state.Off != "" {
			t.Errorf("state %+v", state)
		}
	}
	want("btl.shm.eager_limit", "8KiB", "tuned")
	want("btl.shm.name", "tuned", "tuned")
	want("btl.shm.rate", "1", "default")
	opt.SiteFile = write(t, "btl.shm.eager_limit: 1KiB")
	want("btl.shm.eager_limit", "1KiB", "file "+opt.SiteFile)
	opt.UserFile = write(t, "btl.shm.eager_limit: 2KiB")
	want("btl.shm.eager_limit", "2KiB", "file "+opt.UserFile)
	opt.Environ = append(opt.Environ, "FERRY_BTL_SHM_EAGER_LIMIT=3KiB")
	want("btl.shm.eager_limit", "3KiB", "environment FERRY_BTL_SHM_EAGER_LIMIT")
	opt.Flags = []Setting{{Name: "btl.shm.eager_limit", Value: "5KiB"}}
	want("btl.shm.eager_limit", "5KiB", "flag --set")
	opt.Explicit = []Setting{{Name: "btl.shm.eager_limit", Value: "6KiB"}}
	want("btl.shm.eager_limit", "6KiB", "WithParam")
}

func TestEverySourceCanSwitchTunedValuesOff(t *testing.T) {
	environ, _ := keep(t, nil, eager)
	for source, change := range map[string]func(*Options){
		"environment FERRY_TUNE_USE": func(o *Options) { o.Environ = append(environ[:1:1], "FERRY_TUNE_USE=off") },
		"flag --set":                 func(o *Options) { o.Flags = []Setting{{Name: UseTuned, Value: "off"}} },
		"WithParam":                  func(o *Options) { o.Explicit = []Setting{{Name: UseTuned, Value: "off"}} },
		"file ":                      func(o *Options) { o.SiteFile = write(t, "tune.use: off") },
	} {
		opt := hermetic()
		opt.Environ = environ
		change(&opt)
		v, state := loadTuned(t, opt)
		if get(v, eager.Name).Source != "default" || !strings.HasPrefix(state.Off, source) || state.Result != nil || state.Err != nil {
			t.Errorf("%s: %v, state %+v", source, get(v, eager.Name), state)
		}
	}
}

// Whatever is in the file, the program starts, with its defaults.
func TestFilesThatDontHoldHereAreLeftOutWithAReason(t *testing.T) {
	cases := map[string]func(*tuned.Result){
		"format 99":                    func(r *tuned.Result) { r.Format = 99 },
		"another machine":              func(r *tuned.Result) { r.Machine.Processors++ },
		"under kernel 1.0":             func(r *tuned.Result) { r.Machine.Kernel = "1.0" },
		"now it is 4KiB":               func(r *tuned.Result) { r.Params[0].Default = "2KiB" },
		"at most 1MiB":                 func(r *tuned.Result) { r.Params[0].Value = "2MiB" },
		"tune.use, which is not for":   func(r *tuned.Result) { r.Params = append(r.Params, tuned.Param{Name: UseTuned, Default: "true"}) },
		`btl, which is not for tuning`: func(r *tuned.Result) { r.Params = []tuned.Param{{Name: "btl", Value: "^shm"}} },
	}
	check := func(says string, opt Options, file string) {
		t.Helper()
		v, state := loadTuned(t, opt)
		if get(v, eager.Name) != (framework.Value{Text: "4KiB", Source: "default"}) || state.Result != nil || state.File != file {
			t.Errorf("%s: %v, state %+v", says, get(v, eager.Name), state)
		}
		if state.Err == nil || !strings.Contains(state.Err.Error(), says) || !strings.Contains(state.Err.Error(), file) ||
			!strings.Contains(state.Err.Error(), "`ferry tune`") || strings.Contains(state.Err.Error(), "\n") {
			t.Errorf("%s: %v", says, state.Err)
		}
	}
	for says, change := range cases {
		opt := hermetic()
		var file string
		opt.Environ, file = keep(t, change, eager)
		check(says, opt, file)
	}
	opt := hermetic()
	var file string
	opt.Environ, file = keep(t, nil, eager)
	if err := os.WriteFile(file, []byte("not JSON"), 0o600); err != nil {
		t.Fatal(err)
	}
	check("is damaged", opt, file)
}

func TestNoFileIsNoMatter(t *testing.T) {
	empty := t.TempDir()
	if err := tuned.Prepare(tuned.Dir(empty, "")); err != nil {
		t.Fatal(err)
	}
	for _, environ := range [][]string{
		{}, // no HOME
		{"HOME=relative", "XDG_CACHE_HOME=relative"},
		{"HOME=" + filepath.Join(empty, "nowhere")},
		{"HOME=/dev/null"},
		{"XDG_CACHE_HOME=" + empty},
	} {
		opt := hermetic()
		opt.Environ = environ
		if v, state := loadTuned(t, opt); get(v, eager.Name).Source != "default" || state != (Tuned{}) {
			t.Errorf("%v: %v, state %+v", environ, get(v, eager.Name), state)
		}
	}
	// A registry without the parameter has no such source at all.
	opt := hermetic()
	opt.Environ, _ = keep(t, nil, eager)
	if v := load(t, opt); get(v, eager.Name).Source != "default" {
		t.Error(get(v, eager.Name))
	}
}

// Beside the 2 ms in which a rank starts.
func BenchmarkLoadWithTunedFile(b *testing.B) {
	r := tunable()
	opt := hermetic()
	opt.Environ, _ = keep(b, func(r *tuned.Result) {
		r.Figures = []byte(`[` + strings.Repeat(`{"size":65536,"path":"frames","latency_us":1.25,"bandwidth_mbps":30000},`, 100) + `0]`)
	}, eager)
	for b.Loop() {
		if _, err := Load(r, opt); err != nil {
			b.Fatal(err)
		}
	}
}
