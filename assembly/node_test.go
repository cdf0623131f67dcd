package assembly

import (
	"testing"

	"github.com/ferrympi/ferry/components"
	"github.com/ferrympi/ferry/framework"
)

func TestNodeID_SegmentDirectory_Decides(t *testing.T) {
	marked := func(dir, mark string) string {
		values, err := components.Standard().Defaults()
		if err != nil {
			t.Fatal(err)
		}
		if values, err = values.Set(framework.Setting{Name: "btl.shm.dir", Value: dir, Source: "the test"}); err != nil {
			t.Fatal(err)
		}
		return nodeID(values, mark)
	}
	of := func(dir string) string { return marked(dir, "") }
	here, there := t.TempDir(), t.TempDir()
	if id, again := of(here), of(here); id == "" || again != id || of(there) == id {
		t.Errorf("%q, %q, %q", id, again, of(there))
	}
	if id := of(here + "/missing"); id != "" {
		t.Errorf("a directory that is not there: %q", id)
	}
	if id := marked(here, "n1"); id == of(here) || id == marked(here, "n2") || id != marked(here, "n1") {
		t.Errorf("on a divided machine: %q", id)
	}
	for _, id := range []string{"", of(there)} {
		if card := (framework.Card{}).WithNode(of(here)); card.OnNode(id) || !card.OnNode(of(here)) {
			t.Errorf("%v on %q", card, id)
		}
	}
	if (framework.Card{}).WithNode("").OnNode("") {
		t.Error("two processes that know nothing are on one node")
	}
}
