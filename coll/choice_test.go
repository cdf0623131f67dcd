package coll_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/scripttest"
)

// TestChoices prints the choices of coll/tuned and coll/basic for each number of ranks, which
// docs/collectives.md lists. A line is a number, optionally "hosts" for a node per rank, and
// parameters.
func TestChoices(t *testing.T) {
	scripttest.Run(t, "testdata/choices.txt", func() func(string) ([]string, error) {
		return func(line string) ([]string, error) { return bestChoices(t, line) }
	})
}

func bestChoices(t *testing.T, line string) (lines []string, err error) {
	var ranks int
	words := strings.Fields(line)
	if _, err := fmt.Sscan(words[0], &ranks); err != nil {
		return nil, err
	}
	set := map[string]string{}
	shape := coll.Shape{Size: ranks}
	for _, word := range words[1:] {
		if word == "hosts" {
			nodes := make([]int, ranks)
			for rank := range nodes {
				nodes[rank] = rank
			}
			shape.Nodes = coll.PlacementOf(nodes...)
			continue
		}
		name, value, _ := strings.Cut(word, "=")
		set[name] = value
	}
	s, force, err := selected(t, set)
	if err != nil {
		return nil, err
	}
	var offers []coll.ComponentOffer
	for _, c := range s.Chosen {
		offers = append(offers, coll.ComponentOffer{Component: c.Verdict.Name, Offer: c.Component.(coll.Component).Query(c.Params, shape)})
	}
	for op, list := range coll.NewTable(offers, force) {
		var words []string
		tuned := false // Choices that are basic everywhere are not listed.
		for _, c := range slices.Backward(list) {
			tuned = tuned || c.Component == "tuned"
			words = append(words, fmt.Sprintf("%v %s %s", framework.Size(c.From), c.Component, c.Algorithm.Name))
		}
		if tuned {
			lines = append(lines, coll.Operation(op).String()+": "+strings.Join(words, ", "))
		}
	}
	return lines, nil
}
