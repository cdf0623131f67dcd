package assembly

import (
	"maps"
	"slices"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/components/core"
	"github.com/ferrympi/ferry/framework"
)

// ForcedAlgorithms returns the algorithms that coll.force requires among these values, or nil.
func (a *Assembly) ForcedAlgorithms(values *framework.Values) (*coll.Force, error) {
	return core.Forced(values, a.selections)
}

// CollOffers returns the offers of the selected components for communicators of a shape, in the order of selection.
func (a *Assembly) CollOffers(shape coll.Shape) (offers []coll.ComponentOffer, err error) {
	for _, choice := range a.selections[framework.Coll].Chosen {
		component, ok := choice.Component.(coll.Component)
		if !ok {
			return nil, wrongContract(choice)
		}
		if o := component.Query(choice.Params, shape); o != nil {
			if err := o.Check(choice.Verdict.Name); err != nil {
				return nil, err
			}
			offers = append(offers, coll.ComponentOffer{Component: choice.Verdict.Name, Offer: o})
		}
	}
	return offers, nil
}

// Collective is the algorithm of an operation on communicators of a number of members, from a block size in bytes on (coll.Args.Size).
type Collective struct {
	MemberCount int    `json:"members"`
	Operation   string `json:"operation"`
	FromBytes   int    `json:"from_size"`
	Component   string `json:"component"`
	Algorithm   string `json:"algorithm"`
}

// RecordCollectives records the algorithms of a communicator for Explain. It replaces those of another communicator with as many members.
// complete reports that t includes components with an instance. Such a table is not replaced by one without.
func (a *Assembly) RecordCollectives(members int, t *coll.Table, complete bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.collTables == nil {
		a.collTables = map[int]recordedTable{}
	}
	if complete || !a.collTables[members].isComplete {
		a.collTables[members] = recordedTable{t, complete}
	}
}

type recordedTable struct {
	*coll.Table
	isComplete bool
}

// collectives returns the recorded algorithms of communicators with at least two members.
func (a *Assembly) collectives() []Collective {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := []Collective{}
	for _, members := range slices.Sorted(maps.Keys(a.collTables)) {
		if members == 1 {
			continue
		}
		for op, choices := range a.collTables[members].Table {
			for _, c := range slices.Backward(choices) { // The largest size is first.
				list = append(list, Collective{members, coll.Operation(op).String(), c.From, c.Component, c.Algorithm.Name})
			}
		}
	}
	return list
}
