package assembly

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/local"
	"github.com/ferrympi/ferry/components"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl/mtltest"
)

func TestExplain_Requirements_NameComponentsAndParameters(t *testing.T) {
	frames := Need{Component: "pml ob1", Requires: "btl", For: "frames: the one that reaches a peer best", SatisfiedBy: []string{"self"}}
	network := Need{Component: "pml cm", Requires: "mtl", For: "messages that the network matches", SatisfiedBy: []string{"memory"}}
	node := Need{Component: "pml cm", Requires: "pml for the node", For: "messages between processes of a node",
		Parameter: "pml.cm.shared_memory", SatisfiedBy: []string{"ob1"}}
	for shared, want := range map[string][]Need{"true": {frames, network, node}, "false": {network}} {
		client, err := local.Component().Open(t.Context(), bootstrap.Env{Params: local.Component().Params()})
		if err != nil {
			t.Fatal(err)
		}
		reg := components.Standard()
		reg.Register(mtltest.NewMemory(mtltest.Options{}).Component())
		a, err := Open(t.Context(), Options{Registry: reg, Client: client, Settings: []framework.Setting{
			{Name: "pml", Value: "cm"}, {Name: "mtl", Value: "memory"}, {Name: "btl", Value: "self"}, {Name: "pml.cm.shared_memory", Value: shared},
		}})
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, a.Explain().Requirements); d != "" {
			t.Errorf("shared memory: %s: %s", shared, d)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	}
	if got, want := node.String(), "pml cm requires pml for the node (messages between processes of a node; pml.cm.shared_memory): ob1"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// A failure in the returned error is not logged, because a line for each component and rank would hide other messages.
func TestOpen_RequiredComponentFails_IsNotLogged(t *testing.T) {
	for _, c := range []struct {
		pml, mtl string
		// Another component is used, and Open returns no error.
		logs bool
	}{{"cm", "memory", false}, {"^ucx", "^ofi,ucx", true}} {
		client, err := local.Component().Open(t.Context(), bootstrap.Env{Params: local.Component().Params()})
		if err != nil {
			t.Fatal(err)
		}
		reg := components.Standard()
		reg.Register(mtltest.NewMemory(mtltest.Options{MaxMessage: 60}).Component()) // too little for cm
		var log bytes.Buffer
		a, err := Open(t.Context(), Options{Registry: reg, Client: client, Logger: slog.New(slog.NewTextHandler(&log, nil)), Settings: []framework.Setting{
			{Name: "pml", Value: c.pml}, {Name: "mtl", Value: c.mtl}, {Name: "btl", Value: "self"},
		}})
		if err == nil {
			err = a.Close()
		} else if !strings.Contains(err.Error(), "60 bytes") {
			t.Errorf("pml=%s: %v", c.pml, err)
		}
		if strings.Contains(log.String(), "failed to open") != c.logs || (err == nil) != c.logs {
			t.Errorf("pml=%s: %v; its log: %s", c.pml, err, &log)
		}
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestOpen_NoTransportToItself_RemedyFitsTheList(t *testing.T) {
	for list, remedy := range map[string]string{"tcp": "add self to the list of btl", "^self": "remove self from the list of btl"} {
		client, err := local.Component().Open(t.Context(), bootstrap.Env{Params: local.Component().Params()})
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		a, err := Open(t.Context(), Options{Registry: components.Standard(), Client: client, Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Settings: []framework.Setting{{Name: "pml", Value: "ob1"}, {Name: "btl", Value: list}}})
		if err == nil {
			err = a.Close()
		}
		if err := errors.Join(err, client.Close()); err != nil {
			t.Errorf("btl=%s: %v", list, err)
		}
		if !strings.Contains(log.String(), remedy) {
			t.Errorf("btl=%s: want %q in %s", list, remedy, &log)
		}
	}
}
