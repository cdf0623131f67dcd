package assembly

import (
	"maps"
	"slices"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/components/core"
	"github.com/ferrympi/ferry/framework"
)

// Forced returns what coll.force asks for among these values; nil: nothing.
func (a *Assembly) Forced(values *framework.Values) (*coll.Force, error) {
	return core.Forced(values, a.selections)
}

// Coll returns what the selected components offer on communicators of a shape, in the
// order of selection.
func (a *Assembly) Coll(shape coll.Shape) (offers []coll.Offered, err error) {
	for _, choice := range a.selections[framework.Coll].Chosen {
		component, ok := choice.Component.(coll.Component)
		if !ok {
			return nil, wrongContract(choice)
		}
		if o := component.Query(choice.Params, shape); o != nil {
			if err := o.Check(choice.Verdict.Name); err != nil {
				return nil, err
			}
			offers = append(offers, coll.Offered{Component: choice.Verdict.Name, Offer: o})
		}
	}
	return offers, nil
}

// Collective is what an operation does on communicators of so many members, from a size
// on. The size is that of a block in bytes, as algorithms are chosen by (coll.Args.Size).
type Collective struct {
	Members   int    `json:"members"`
	Operation string `json:"operation"`
	From      int    `json:"from_size"`
	Component string `json:"component"`
	Algorithm string `json:"algorithm"`
}

// NoteCollectives keeps what is done on a communicator, for Explain: of several with as
// many members the last one's. complete: what needs an instance is among it, and what
// lacks that no longer counts.
func (a *Assembly) NoteCollectives(members int, t *coll.Table, complete bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.tables == nil {
		a.tables = map[int]tableNote{}
	}
	if complete || !a.tables[members].complete {
		a.tables[members] = tableNote{t, complete}
	}
}

type tableNote struct {
	*coll.Table
	complete bool
}

// collectives lists what was noted, except of members that are alone.
func (a *Assembly) collectives() []Collective {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := []Collective{}
	for _, members := range slices.Sorted(maps.Keys(a.tables)) {
		if members == 1 {
			continue
		}
		for op, choices := range a.tables[members].Table {
			for _, c := range slices.Backward(choices) { // the largest size comes first
				list = append(list, Collective{members, coll.Operation(op).String(), c.From, c.Component, c.Algorithm.Name})
			}
		}
	}
	return list
}
