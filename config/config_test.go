package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/google/go-cmp/cmp"
)

type shm struct {
	Eager   framework.Size `param:"eager_limit" default:"4KiB" max:"1MiB" level:"tuner" scope:"process" doc:"d"`
	Wait    time.Duration  `param:"wait" default:"1s" level:"tuner" scope:"process" doc:"d"`
	Rate    float64        `param:"rate" default:"1" level:"tuner" scope:"process" doc:"d"`
	Pin     bool           `param:"pin" former:"fix" default:"false" level:"tuner" scope:"process" doc:"d"`
	Devices []string       `param:"devices" default:"" level:"tuner" scope:"process" doc:"d"`
	Name    string         `param:"name" default:"" level:"tuner" scope:"process" doc:"d"`
}

func registry() *framework.Registry {
	r := framework.NewRegistry()
	r.RegisterParams(framework.ParamsOf("btl.shm", new(shm))...)
	r.SetDefault("btl.shm.name", "manifest")
	return r
}

// hermetic returns options that exclude the files and the environment of this machine.
func hermetic() Options {
	return Options{SiteFile: os.DevNull, UserFile: os.DevNull, Environ: []string{}}
}

func write(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func load(t testing.TB, opt Options) *framework.Values {
	t.Helper()
	v, err := Load(registry(), opt)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func get(v *framework.Values, name string) framework.Value {
	value, _ := v.Get(name)
	return value
}

func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if !errors.Is(err, framework.ErrConfig) {
		t.Fatalf("error %v does not answer ErrConfig", err)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q does not say %q", err, p)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("error %q has several lines", err)
	}
}

func TestLoad_Layers_HavePrecedence(t *testing.T) {
	opt := hermetic()
	name := func(v string) []Setting { return []Setting{{Name: "btl.shm.name", Value: v}} }
	want := func(text, source string) {
		t.Helper()
		if got := get(load(t, opt), "btl.shm.name"); got != (framework.Value{Text: text, Source: source, IsStanding: strings.HasPrefix(source, "file ")}) {
			t.Errorf("got %v, want %s from %s", got, text, source)
		}
	}
	want("manifest", "components.yaml")
	opt.SiteFile = write(t, "btl.shm.name: site")
	want("site", "file "+opt.SiteFile)
	opt.UserFile = write(t, "btl.shm.name: user")
	want("user", "file "+opt.UserFile)
	named := write(t, "btl.shm.name: named")
	opt.Environ = []string{"FERRY_CONFIG=" + named, "PATH=/bin", "FERRY"}
	want("named", "file "+named)
	opt.Environ = append(opt.Environ, "FERRY_BTL_SHM_NAME=env=1")
	want("env=1", "environment FERRY_BTL_SHM_NAME")
	opt.Environ = append(opt.Environ, "FERRY_FLAGS=btl.shm.pin,btl.shm.name") // a launcher's
	want("env=1", "flag --set")
	opt.Flags = append(name("flag"), name("flag2")...)
	want("flag2", "flag --set")
	opt.Flags[1].Source = "flag --name"
	want("flag2", "flag --name")
	opt.Explicit = name("explicit")
	want("explicit", "WithParam")
}

func TestUserFile_Environ_DeterminesPath(t *testing.T) {
	dir := t.TempDir()
	for _, p := range []string{"xdg/ferry", "home/.config/ferry"} {
		if err := os.MkdirAll(filepath.Join(dir, p), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, p, "config.yaml"), []byte("btl.shm.name: "+p), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ xdg, home, want string }{
		{dir + "/xdg", dir + "/home", "xdg/ferry"},
		{"", dir + "/home", "home/.config/ferry"},
		{"relative", dir + "/home", "home/.config/ferry"},
		{"", dir, "manifest"},
		{"", "/dev/null", "manifest"},
		{"", "", "manifest"},
	} {
		opt := Options{SiteFile: os.DevNull, Environ: []string{"XDG_CONFIG_HOME=" + c.xdg, "HOME=" + c.home}}
		if got := get(load(t, opt), "btl.shm.name").Text; got != c.want {
			t.Errorf("%+v: name is %q", c, got)
		}
	}
}

func TestLoad_YAMLForms_SetParameters(t *testing.T) {
	for text, want := range map[string]map[string]string{
		"btl: {shm: {eager_limit: 8KiB, pin: true}}":                      {"btl.shm.eager_limit": "8KiB", "btl.shm.pin": "true"},
		"btl.shm: {eager_limit: 8192}\nbtl: ^tcp":                         {"btl.shm.eager_limit": "8192", "btl": "^tcp"},
		"btl: ^tcp\nbtl.shm.rate: 0.25":                                   {"btl": "^tcp", "btl.shm.rate": "0.25"},
		"btl: [shm, self]\nmtl: ''":                                       {"btl": "shm,self", "mtl": ""},
		"select: {btl: '^tcp'}\nparams: {btl.shm.eager_limit: 1}":         {"btl": "^tcp", "btl.shm.eager_limit": "1"},
		"params: {btl: {shm: {wait: 20ms, devices: [a, 2]}}}\nselect: {}": {"btl.shm.wait": "20ms", "btl.shm.devices": "a,2"},
		"# nothing\n": {},
		"":            {},
		"base: &b {wait: 2s}\nbtl: {shm: {<<: *b}}":                        nil, // base is unknown
		"btl: {shm: &b {wait: 2s}}\nselect: {pml: ob1}\nparams: {cid: {}}": {"btl.shm.wait": "2s", "pml": "ob1"},
	} {
		opt := hermetic()
		opt.UserFile = write(t, text)
		v, err := Load(registry(), opt)
		if want == nil {
			wantError(t, err, `unknown parameter "base.wait"`)
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		got := map[string]string{}
		for _, name := range v.Names() {
			if value := get(v, name); value.Source == "file "+opt.UserFile {
				got[name] = value.Text
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%q: %s", text, d)
		}
	}
}

func TestLoad_InvalidFile_NamesFileAndLine(t *testing.T) {
	for text, says := range map[string][]string{
		"btl:\n  shm: [\n":                                  {"line 2"},
		"btl: 1\npml: 2\nbtl: 3\n":                          {"line 3", "btl"},
		"just text":                                         {"line 1"},
		"btl: {smh: {eager_limit: 1}}":                      {`"btl.smh.eager_limit"`, "nearest known name is btl.shm.eager_limit"},
		"btl.shm.eager_limit: 2MiB":                         {"parameter btl.shm.eager_limit", "at most 1MiB"},
		"btl: {shm: {eager_limit: 1}}\nbtl.shm.pin:":        {"key btl.shm.pin", "no value"},
		"btl.shm: {pin: true}\nparams: {btl.shm.pin: true}": {"btl.shm.pin is set twice", "params.btl.shm.pin"},
		"select: {btl.shm.pin: true}":                       {"key select.btl.shm.pin", "params"},
		"select: {bttl: shm}":                               {`"bttl"`, "nearest known name is btl"},
		"btl.shm.devices: [[a]]":                            {"btl.shm.devices", "list"},
		"btl.shm.devices: ['a,b']":                          {"btl.shm.devices", "comma"},
		"btl.shm.devices: [{a: b}]":                         {"btl.shm.devices"},
		"btl.shm.name: 2001-01-01":                          {"btl.shm.name", "quotes"},
		"a: &a [*a]":                                        {"contains itself"},
		"version: 1":                                        {`unknown parameter "version"`},
		"btl.shm.pin: true\n---\nbtl.shm.pin: false\n":      {"line 2", "second YAML document"},
		"btl.shm.pin: true\n---\n[":                         {"line 3"},
	} {
		opt := hermetic()
		opt.SiteFile = write(t, text)
		_, err := Load(registry(), opt)
		wantError(t, err, append(says, opt.SiteFile)...)
	}
}

func TestLoad_UnreadableFile_ReturnsErrConfig(t *testing.T) {
	opt := hermetic()
	opt.UserFile = t.TempDir()
	_, err := Load(registry(), opt)
	wantError(t, err, opt.UserFile, "not a regular file")

	opt.UserFile = filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(opt.UserFile, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = Load(registry(), opt) // reading it would wait for ever
	wantError(t, err, opt.UserFile, "not a regular file")

	opt.UserFile = write(t, "#"+strings.Repeat("x", maxFile))
	_, err = Load(registry(), opt)
	wantError(t, err, opt.UserFile, "at most")

	opt.UserFile = filepath.Join(write(t, ""), "below")
	load(t, opt) // below a file there is no file

	opt.Environ = []string{"FERRY_CONFIG=/nonexistent/ferry.yaml"}
	_, err = Load(registry(), opt)
	wantError(t, err, "FERRY_CONFIG", "/nonexistent/ferry.yaml")
}

func TestLoad_MisspeltVariable_ReturnsErrConfig(t *testing.T) {
	opt := hermetic()
	for variable, near := range map[string]string{
		"FERRY_BTL_SHM_EAGR_LIMIT": "FERRY_BTL_SHM_EAGER_LIMIT",
		"FERRY_CONFG":              "FERRY_CONFIG",
		"FERRY_BTL_SHM_PNI":        "FERRY_BTL_SHM_PIN",
	} {
		opt.Environ = []string{variable + "=1"}
		_, err := Load(registry(), opt)
		wantError(t, err, "environment variable "+variable+" ", "nearest known name is "+near)
	}
	opt.Environ = []string{"FERRY_BTL_SHM_FIX=1"}
	_, err := Load(registry(), opt)
	wantError(t, err, "environment variable FERRY_BTL_SHM_FIX ", "it is now FERRY_BTL_SHM_PIN")

	opt.Environ = []string{"FERRY_BTL_SHM_PIN=perhaps"}
	_, err = Load(registry(), opt)
	wantError(t, err, "environment FERRY_BTL_SHM_PIN", "btl.shm.pin", "true or false")

	opt = hermetic()
	opt.Flags = []Setting{{Name: "btl.shm.pn", Value: "1"}}
	_, err = Load(registry(), opt)
	wantError(t, err, "flag --set", "btl.shm.pin")
}

func FuzzFile(f *testing.F) {
	for _, s := range []string{
		"btl: {shm: {eager_limit: 8KiB}}", "select: {btl: '^tcp'}\nparams: {btl.shm.pin: on}", "a: &a [*a]", "? [a]\n: b",
		"btl: [a, 1, 2.5, true, ~]", "1: 2", "- a", "btl: !!binary aGVsbG8=", "a.b: 1\na: {b: 2}", "\x00", "---\na: 1\n---\nb: 2", ".: 1", "'': {'': 1}",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		l, err := newLayer("file fuzz.yaml", document{text: text}, parser{pluginEntries: new(any)})
		if err != nil {
			if !errors.Is(err, framework.ErrConfig) || !strings.Contains(err.Error(), "file fuzz.yaml") {
				t.Fatal(err)
			}
			return
		}
		v, err := registry().Defaults()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := merge(v, []layer{l}); err != nil && !errors.Is(err, framework.ErrConfig) {
			t.Fatal(err)
		}
	})
}

// A rank starts in about 2 ms; without files Load may take a tenth of that at
// most.
func BenchmarkLoadWithoutFiles(b *testing.B) {
	r := registry()
	dir := b.TempDir()
	opt := Options{SiteFile: dir + "/none.yaml", Environ: append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME=", "FERRY_BTL_SHM_PIN=on")}
	for b.Loop() {
		if _, err := Load(r, opt); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLoadWithUserFile(b *testing.B) {
	r := registry()
	opt := hermetic()
	opt.UserFile = write(b, "btl: {shm: {eager_limit: 8KiB}}\nselect: {btl: ^tcp}\n")
	for b.Loop() {
		if _, err := Load(r, opt); err != nil {
			b.Fatal(err)
		}
	}
}
