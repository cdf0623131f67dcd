package tuned

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/coll/basic"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/framework/scripttest"
)

// TestChoices shows what is chosen beside coll/basic: docs/collectives.md says the same.
// A line is a number of ranks, and perhaps parameters.
func TestChoices(t *testing.T) {
	scripttest.Run(t, "testdata/choices/*.txt", func() func(string) ([]string, error) { return choices })
}

func choices(line string) (lines []string, err error) {
	var ranks int
	words := strings.Fields(line)
	if _, err := fmt.Sscan(words[0], &ranks); err != nil {
		return nil, err
	}
	p := kittest.Params(Component(), nil).(*params)
	for _, word := range words[1:] {
		name, text, _ := strings.Cut(word, "=")
		size, err := framework.ParseSize(text)
		if err != nil {
			return nil, err
		}
		switch name {
		case "bcast_chain":
			p.BcastChain = size
		case "linear_ranks":
			p.LinearRanks = int(size)
		default:
			return nil, fmt.Errorf("no parameter %s", name)
		}
	}
	shape := coll.Shape{Size: ranks}
	table := coll.NewTable([]coll.Offered{
		{Component: "tuned", Offer: Component().Query(p, shape)},
		{Component: "basic", Offer: basic.Component().Query(nil, shape)},
	}, nil)
	for op, list := range table {
		words := []string{}
		tuned := false
		for i := range list {
			c := list[len(list)-1-i]
			tuned = tuned || c.Component == "tuned"
			words = append(words, fmt.Sprintf("%v %s %s", framework.Size(c.From), c.Component, c.Algorithm.Name))
		}
		if tuned {
			lines = append(lines, coll.Operation(op).String()+": "+strings.Join(words, ", "))
		}
	}
	return lines, nil
}
