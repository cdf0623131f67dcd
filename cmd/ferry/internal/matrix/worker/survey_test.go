package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/plan"
	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/report"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl"
)

type fakeComponent struct {
	kind    framework.Kind
	name    string
	verdict framework.Verdict
}

func (p fakeComponent) Info() framework.Info                         { return framework.Info{Kind: p.kind, Name: p.name} }
func (p fakeComponent) Params() any                                  { return nil }
func (p fakeComponent) Probe(context.Context, any) framework.Verdict { return p.verdict }

// A fakePML requires components of a kind.
type fakePML struct {
	fakeComponent
	transport framework.Kind
}

func (l fakePML) Requires(any) []framework.Requirement {
	return []framework.Requirement{{Kind: framework.PML, Node: true}, {Kind: l.transport}}
}

// A fakeMTL is an MTL whose survey runs in a worker.
type fakeMTL struct {
	fakeComponent
	// Result of Survey.
	err error
}

func (s fakeMTL) Params() any {
	return &struct {
		Include []string `param:"provider_include" default:"" level:"user" scope:"process" doc:"Providers."`
	}{}
}

func (s fakeMTL) Probe(context.Context, any) framework.Verdict { return s.verdict }

func (s fakeMTL) Providers(context.Context, any) ([]string, error) { return []string{"a", "b"}, s.err }

func (s fakeMTL) Survey(context.Context, any) ([]mtl.Candidate, error) {
	return []mtl.Candidate{{Name: "x on eth0", Provider: "x"}, {Name: "A on eth1", Provider: "A", Library: "lib 1"}}, s.err
}

func (fakeMTL) LogEnvironment() []string { return []string{"LOG=all"} }

func (fakeMTL) LogReason(provider, log string) string {
	if strings.Contains(log, provider+" has no cable") {
		return "it has no cable"
	}
	return ""
}

// answerSurvey ends a survey with the result of its name.
func (w *worker) answerSurvey(name string) {
	offer := func(c mtl.Candidate) {
		w.End(Event{Status: report.Pass, Survey: &plan.SurveyResult{BestCandidate: &c}})
	}
	switch {
	case w.task.ViaComponent == "mtl lacking":
		w.End(Event{Status: report.Unavailable, Reason: "there is no library"})
	case w.task.ViaComponent == "mtl dying":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case w.task.Name == plan.Providers:
		w.End(Event{Status: report.Pass, Survey: &plan.SurveyResult{Providers: []string{"missing", "fine", "refused", "dies", "old", "hangs"}}})
	case name == "fine":
		offer(mtl.Candidate{Name: "fine on eth0", Provider: "fine", Library: "lib 1.2", Reason: "near"})
	case name == "refused":
		offer(mtl.Candidate{Name: "refused on eth0", Provider: "refused", Refused: true, Reason: "a known defect"})
	case name == "missing":
		fmt.Println(os.Getenv("LOG"), "missing has no cable")
		offer(mtl.Candidate{Name: "missing", Provider: "missing", Unavailable: true, Reason: "no data"})
	case name == "hangs":
		offer(mtl.Candidate{Name: "hangs", Provider: "hangs", Unavailable: true, Hangs: true, Reason: "it does not return"})
	case name == "old":
		w.End(Event{Status: report.Unavailable, Reason: "it is too old"})
	default:
		_ = syscall.Kill(os.Getpid(), syscall.SIGSEGV)
		select {}
	}
}

// The case open then reports the failure.
func TestPlan_SurveyProcessDies_StackIsListed(t *testing.T) {
	usable := framework.Usable()
	reg := framework.NewRegistry()
	for _, c := range []framework.Component{
		fakePML{fakeComponent{framework.PML, "over_btl", usable}, framework.BTL},
		fakePML{fakeComponent{framework.PML, "over_mtl", usable}, framework.MTL},
		fakeComponent{framework.PML, "own", usable},
		fakeComponent{framework.BTL, "self", usable},
		fakeComponent{framework.BTL, "wire", usable},
		fakeComponent{framework.BTL, "cut", framework.Unavailable("it is cut", "mend it")},
		fakeComponent{framework.MTL, "plain", usable},
		fakeMTL{fakeComponent: fakeComponent{framework.MTL, "dying", usable}},
		fakeMTL{fakeComponent: fakeComponent{framework.MTL, "lacking", usable}},
		fakeMTL{fakeComponent: fakeComponent{framework.MTL, "net", usable}},
	} {
		reg.Register(c)
	}
	reg.NotBuilt(framework.PML, "later", "not yet", "")
	values, err := reg.Defaults()
	if err != nil {
		t.Fatal(err)
	}
	r := newBad(t, 0)
	r.Registry, r.Values = reg, values
	p, err := r.Request.MakePlan(t.Context(), r.Survey)
	if err != nil {
		t.Fatal(err)
	}
	stacks := p.Stacks
	got := map[string]string{}
	for _, s := range stacks {
		got[s.Name] = strings.Join(append(s.SetParams, s.AbsentReason), " ")
	}
	net := "pml=over_mtl mtl=net mtl.net.provider_include="
	want := map[string]string{
		"over_btl+self":        "pml=over_btl btl=self ",
		"over_btl+wire":        "pml=over_btl btl=self,wire ",
		"over_btl+cut":         "pml=over_btl btl=self,cut it is cut (mend it)",
		"own":                  "pml=own ",
		"later":                "pml=later not yet",
		"over_mtl+plain":       "pml=over_mtl mtl=plain ",
		"over_mtl+dying":       "pml=over_mtl mtl=dying ",
		"over_mtl+lacking":     "pml=over_mtl mtl=lacking there is no library",
		"over_mtl+net fine":    net + "fine ",
		"over_mtl+net dies":    net + "dies ",
		"over_mtl+net refused": net + "refused a known defect",
		"over_mtl+net missing": net + "missing no data: it has no cable",
		"over_mtl+net old":     net + "old it is too old",
		"over_mtl+net hangs":   net + "hangs it does not return",
	}
	if !maps.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	i := slices.IndexFunc(stacks, func(s report.Stack) bool { return s.Name == "over_mtl+net fine" })
	if s := stacks[max(i, 0)]; s.Library != "lib 1.2" || s.Device != "eth0" || s.Provider != "fine" || s.ViaComponent != "mtl net" {
		t.Errorf("%+v", s)
	}
	for _, s := range stacks {
		if want := s.Name == "over_mtl+net hangs"; s.SurveyHangs != want || s.AbsentReason != "" && (s.Absent() == report.Timeout) != want {
			t.Errorf("%s hangs: %t", s.Name, s.SurveyHangs)
		}
	}
}

// runSurvey surveys an MTL in a worker, and returns the last event.
func runSurvey(t *testing.T, c framework.Component, column, provider string) (Event, error) {
	t.Helper()
	reg := framework.NewRegistry()
	reg.Register(c)
	values, err := reg.Defaults()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(task{Column: plan.Column{Name: column, CellNames: []string{provider}}, ViaComponent: "mtl net"})
	if err != nil {
		t.Fatal(err)
	}
	var out, errs strings.Builder
	workErr := Work(t.Context(), reg, values, string(text), &out, &errs)
	var last Event
	if err := readEvents(strings.NewReader(out.String()), func(e Event) error { last = e; return nil }); err != nil {
		t.Fatal(err)
	}
	return last, workErr
}

func TestSurvey_TransportIsMissingOrBroken_StatusesDiffer(t *testing.T) {
	net := fakeComponent{framework.MTL, "net", framework.Usable()}
	if e, err := runSurvey(t, fakeMTL{fakeComponent: net}, plan.Providers, "net"); err != nil || e.Status != report.Pass || !slices.Equal(e.Survey.Providers, []string{"a", "b"}) {
		t.Errorf("providers: %+v %v", e, err)
	}
	// The candidate of the provider, in any spelling.
	if e, err := runSurvey(t, fakeMTL{fakeComponent: net}, plan.Survey, "a"); err != nil || e.Survey.BestCandidate == nil || e.Survey.BestCandidate.Library != "lib 1" {
		t.Errorf("survey: %+v %v", e, err)
	}
	if e, err := runSurvey(t, fakeMTL{net, fmt.Errorf("%w: too old", framework.ErrUnsupported)}, plan.Survey, "a"); err == nil || e.Status != report.Unavailable || !strings.Contains(e.Reason, "too old") {
		t.Errorf("too old: %+v %v", e, err)
	}
	if e, err := runSurvey(t, fakeMTL{net, errors.New("it hangs")}, plan.Providers, "net"); err == nil || e.Status != report.Fail || e.Reason != "it hangs" {
		t.Errorf("broken: %+v %v", e, err)
	}
	net.verdict = framework.Unavailable("no library", "install it")
	if e, err := runSurvey(t, fakeMTL{fakeComponent: net}, plan.Providers, "net"); err != nil || e.Status != report.Unavailable || e.Reason != "no library (install it)" {
		t.Errorf("not there: %+v %v", e, err)
	}
}
