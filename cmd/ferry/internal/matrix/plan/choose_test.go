package plan

import (
	"errors"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/report"
	"github.com/ferrympi/ferry/framework"
)

func TestParseComponents_NamesAndPatterns_SelectStacks(t *testing.T) {
	var all []report.Stack
	for _, name := range []string{"ob1+self", "ob1+shm", "cm+ofi tcp;ofi_rxm", "cm+ofi net"} {
		all = append(all, report.Stack{Name: name})
	}
	for list, want := range map[string]string{
		"ob1+shm": "ob1+shm", "cm+ofi net,ob1+*": "ob1+self ob1+shm cm+ofi net", "^cm*": "ob1+self ob1+shm", "cm+ofi tcp;ofi_rxm": "cm+ofi tcp;ofi_rxm",
	} {
		c, err := ParseComponents(list)
		if err != nil {
			t.Fatal(err)
		}
		chosen, err := c.selectStacks(all)
		var names []string
		for _, s := range chosen {
			names = append(names, s.Name)
		}
		if got := strings.Join(names, " "); err != nil || got != want {
			t.Errorf("%s: %q %v, want %q", list, got, err, want)
		}
	}
	for list, want := range map[string]string{"ob1+smh": `the nearest is "ob1+shm"`, "^*": "every stack is excluded"} {
		c, err := ParseComponents(list)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.selectStacks(all); !errors.Is(err, framework.ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", list, err)
		}
	}
	for _, list := range []string{"", "^", "a,,b", "[", ","} {
		if _, err := ParseComponents(list); !errors.Is(err, framework.ErrConfig) {
			t.Errorf("%q: %v", list, err)
		}
	}
}

// A survey needs a second.
func TestSurvey_StackIsNotSelected_IsNotSurveyed(t *testing.T) {
	known := []report.Stack{{Name: "ob1+self"}, {Name: "ob1+shm"}}
	for list, want := range map[string]bool{
		"ob1+shm": false, "ob1*": false, "cm+ofi tcp;ofi_rxm": true, "cm*": true, "*": true, "*shm": true, "^cm*": true, "ob1+shm,cm+ofi*": true, "ob1+smh": true,
	} {
		c, err := ParseComponents(list)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.canMatch("cm+ofi", known); got != want {
			t.Errorf("%s: %t", list, got)
		}
	}
}

func TestFilterReport_StackIsNotSelected_IsNotGone(t *testing.T) {
	base := &report.Report{
		Stacks: []report.Stack{{Name: "ob1+shm"}, {Name: "ob1+gone"}, {Name: "cm+ofi tcp"}},
		Rows:   []report.Row{{Stack: "ob1+shm", Case: "c", Status: report.Pass}, {Stack: "cm+ofi tcp", Case: "c", Status: report.Pass}},
	}
	c, err := ParseComponents("ob1+*")
	if err != nil {
		t.Fatal(err)
	}
	now := &report.Report{Stacks: base.Stacks[:1], Rows: base.Rows[:1]}
	if got := report.Compare(c.FilterReport(base), now, 0); strings.Join(got.BaseOnlyStacks, " ") != "ob1+gone" {
		t.Errorf("gone: %q", got.BaseOnlyStacks)
	}
	var all *Components
	if got := report.Compare(all.FilterReport(base), now, 0); len(got.BaseOnlyStacks) != 2 {
		t.Errorf("of all: %q", got.BaseOnlyStacks)
	}
}
