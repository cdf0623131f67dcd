package config

import (
	"slices"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/framework"
)

// remote is a group with a parameter that is named like the variable of a service.
type remote struct {
	Port string `param:"port" default:"" level:"user" scope:"process" doc:"d"`
}

// foreignIn returns the foreign variables of an environment, sorted, and the values.
func foreignIn(t *testing.T, environ ...string) (foreign []string, values *framework.Values) {
	t.Helper()
	reg := registry()
	reg.RegisterParams(framework.ParamsOf("bootstrap.remote", new(remote))...)
	opt := hermetic()
	opt.Environ = environ
	opt.Foreign = func(variables []string) { foreign = append(foreign, variables...) }
	values, err := Load(reg, opt)
	if err != nil {
		t.Fatalf("%q: %v", environ, err)
	}
	slices.Sort(foreign)
	return foreign, values
}

// A Kubernetes Service called ferry, or ferry-session, gives every process such variables.
func TestEnvironment_ServiceLinks_AreForeign(t *testing.T) {
	for _, service := range []string{"", "_SESSION", "_BOOTSTRAP", "_COLL", "_PROGRESS", "_BTL", "_BTL_SHM_PIN", "_BOOTSTRAP_REMOTE", "_PORT"} {
		s := "FERRY" + service
		links := []string{
			s + "_SERVICE_HOST=10.0.0.1", s + "_SERVICE_PORT=80", s + "_SERVICE_PORT_HTTP_ALT=8080", s + "_PORT=tcp://10.0.0.1:80",
			s + "_PORT_80_TCP=tcp://10.0.0.1:80", s + "_PORT_80_TCP_ADDR=10.0.0.1", s + "_PORT_80_TCP_PORT=80", s + "_PORT_80_TCP_PROTO=tcp",
			s + "_PORT_53_UDP=udp://[fd00::1]:53", s + "_PORT_53_UDP_ADDR=fd00::1", s + "_PORT_9_SCTP=sctp://10.0.0.1:9", s + "_PORT_9_SCTP_PROTO=sctp",
			s + "_NAME=/web/db", s + "_ENV_PATH=/bin",
		}
		var want []string
		for _, e := range links {
			name, _, _ := strings.Cut(e, "=")
			want = append(want, name)
		}
		slices.Sort(want)
		if foreign, _ := foreignIn(t, links...); !slices.Equal(foreign, want) {
			t.Errorf("service %s: foreign are %q, want %q", s, foreign, want)
		}
	}
}

func TestEnvironment_ParameterNamedLikeALink_CountsUnlessItIsAnAddress(t *testing.T) {
	foreign, values := foreignIn(t, "FERRY_BOOTSTRAP_REMOTE_PORT=node1:4711")
	if got := get(values, "bootstrap.remote.port").Text; got != "node1:4711" || len(foreign) > 0 {
		t.Errorf("bootstrap.remote.port is %q, foreign are %q", got, foreign)
	}
	foreign, values = foreignIn(t, "FERRY_BOOTSTRAP_REMOTE_PORT=tcp://10.0.0.1:80")
	if got := get(values, "bootstrap.remote.port"); got.Source != framework.SourceDefault || !slices.Equal(foreign, []string{"FERRY_BOOTSTRAP_REMOTE_PORT"}) {
		t.Errorf("the address of a service became %+v, foreign are %q", got, foreign)
	}
}

func TestEnvironment_NearlyALink_IsMisspelt(t *testing.T) {
	opt := hermetic()
	for _, entry := range []string{"FERRY_BTL_SHM_NAM=/web/db", "FERRY_BTL_SHM_PIN_=1", "FERRY_BTL_SHM_WAIT_TCP=1"} {
		opt.Environ = []string{entry}
		_, err := Load(registry(), opt)
		wantError(t, err, "sets no parameter")
	}
}

func TestEnvironment_EmptyVariable_IsUnset(t *testing.T) {
	_, values := foreignIn(t, "FERRY_BTL_SHM_EAGER_LIMIT=", "FERRY_BTL_SHM_NAME=", "FERRY_BTL=", "FERRY_CONFIG=", "FERRY_FLAGS=", "FERRY_BTL_SHM_PNI=", "FERRY_=")
	for name, want := range map[string]string{"btl.shm.eager_limit": "4KiB", "btl.shm.name": "manifest", "btl": ""} {
		if got := get(values, name); got.Text != want || got.Source != framework.SourceDefault && got.Source != framework.SourceManifest {
			t.Errorf("%s is %+v", name, got)
		}
	}
	if _, values = foreignIn(t, "FERRY_BTL_SHM_NAME=first", "FERRY_BTL_SHM_NAME="); get(values, "btl.shm.name").Text != "manifest" {
		t.Error("an empty variable does not replace an earlier one of its name")
	}
}

// A launcher hands its flags on as variables.
func TestEnvironment_EmptyVariableOfAFlag_SetsTheEmptyText(t *testing.T) {
	_, values := foreignIn(t, "FERRY_BTL_SHM_NAME=", "FERRY_BTL_SHM_PNI=", "FERRY_FLAGS=btl.shm.name,btl")
	if got := get(values, "btl.shm.name"); got != (framework.Value{Source: SourceFlag}) {
		t.Errorf("btl.shm.name is %+v", got)
	}
}
