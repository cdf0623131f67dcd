package wire

import (
	"slices"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/bootstrap"
)

func TestNodeMap_RunsOfAMap_SurviveTheWelcome(t *testing.T) {
	for _, m := range []bootstrap.NodeMap{
		{{First: 0, Count: 3, Node: 0}},
		{{First: 4, Count: 2, Node: 7}, {First: 6, Count: 1, Node: 0}, {First: 7, Count: 3, Node: 7}},
	} {
		last := m[len(m)-1]
		w := WelcomeBody{First: m[0].First, Size: last.First + last.Count - m[0].First, Nodes: NodeRuns(m), Divided: true}
		again, err := Decode[WelcomeBody](EncodeBody(w))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := again.NodeMap(); err != nil || !slices.Equal(got, m) || !again.Divided {
			t.Errorf("%v became %v, %v", m, got, err)
		}
	}
}

func TestNodeMap_NoMapOfTheWorld_Fails(t *testing.T) {
	for want, w := range map[string]WelcomeBody{
		"rank 2 is missing":                    {First: 2, Size: 2},
		"rank 3 is missing":                    {First: 2, Size: 2, Nodes: []NodeRun{{Count: 1}}},
		"rank 4 is above":                      {First: 2, Size: 2, Nodes: []NodeRun{{Count: 3}}},
		"rank 4 is above the highest rank, 3":  {First: 2, Size: 2, Nodes: []NodeRun{{Count: 2}, {Count: 1, Node: 1}}},
		"has an empty run":                     {First: 2, Size: 2, Nodes: []NodeRun{{Count: 2}, {Node: 1}}},
		"rank 4294967297 is above the highest": {First: 2, Size: 2, Nodes: []NodeRun{{Count: 1<<32 - 1}, {Count: 1}}},
	} {
		if m, err := w.NodeMap(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, %v, want %q", w, m, err, want)
		}
	}
}
