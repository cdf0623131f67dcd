package job

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/report"
	"github.com/ferrympi/ferry/framework"
)

// stacksKey is the key under which rank 0 publishes the stacks.
const stacksKey = "ferry.matrix.agenda"

// A sharedSetting must be equal in all ranks, because each rank executes the plan independently.
type sharedSetting struct {
	// Flag of `ferry matrix`, or "version".
	Name  string `json:"name"`
	Value string `json:"value"`
}

func (j *Job) sharedSettings() []sharedSetting {
	cases := ""
	if j.CasePattern != nil {
		cases = j.CasePattern.String()
	}
	return []sharedSetting{
		{"--suite", j.Suite.Name}, {"--cases", cases}, {"--timeout", j.CaseLimit.String()},
		{"--set", strings.Join(j.SetParams, " ")}, {"version", report.ThisMachine().FerryVersion},
	}
}

// describeDifferences lists the settings that differ from those of rank 0. It returns "" if all are equal.
func describeDifferences(own, first []sharedSetting) string {
	var all []string
	for i, t := range own {
		if i < len(first) && first[i].Name == t.Name && first[i] != t {
			all = append(all, fmt.Sprintf("%s is %q, and in rank 0 %q", t.Name, t.Value, first[i].Value))
		}
	}
	if !slices.EqualFunc(own, first, func(a, b sharedSetting) bool { return a.Name == b.Name }) {
		return "it is a different version of ferry than rank 0"
	}
	return strings.Join(all, ", ")
}

// agreeOnPlan distributes the plan and the host names. It returns an ErrConfig if the settings of the ranks differ.
func (j *Job) agreeOnPlan(ctx context.Context) error {
	if j.rank == 0 {
		text, err := json.Marshal(j.plan.Stacks)
		if err == nil {
			err = j.client.Put(ctx, stacksKey, text)
		}
		if err != nil {
			return err
		}
	}
	host, _ := os.Hostname()
	statuses, err := j.exchangeStatus(ctx, "begin", rankStatus{Host: host, Settings: j.sharedSettings()})
	if err != nil {
		return err
	}
	j.mu.Lock()
	for _, w := range statuses {
		j.hostByRank = append(j.hostByRank, w.Host)
	}
	j.mu.Unlock()
	j.benchPartner = chooseBenchPartner(j.hostByRank)
	if differences := j.joinReasons(statuses, func(w rankStatus) string { return describeDifferences(w.Settings, statuses[0].Settings) }); differences != "" {
		return reportedError{fmt.Errorf("%w: all ranks need the same flags: %s", framework.ErrConfig, differences)}
	}
	if j.rank == 0 {
		j.addPlacementNotes()
		return nil
	}
	var stacks []report.Stack
	text, err := j.client.Get(ctx, j.group[0], stacksKey)
	if err == nil {
		err = json.Unmarshal(text, &stacks)
	}
	j.plan = j.PlanFor(stacks)
	j.record = j.plan.Begin(nil)
	return err
}

// chooseBenchPartner returns the last rank on another node than rank 0, or the last rank.
func chooseBenchPartner(hosts []string) int {
	for rank, host := range slices.Backward(hosts) {
		if host != hosts[0] {
			return rank
		}
	}
	return len(hosts) - 1
}

// addPlacementNotes adds the placement of the ranks to the report.
func (j *Job) addPlacementNotes() {
	hosts := slices.Compact(slices.Sorted(slices.Values(j.hostByRank)))
	notes := &j.record.Report.Notes
	*notes = append(*notes, fmt.Sprintf("one job of %s on %s: %s", report.Plural(j.LauncherRanks, "rank"), report.Plural(len(hosts), "node"), strings.Join(hosts, ", ")))
	if j.benchPartner > 0 {
		*notes = append(*notes, fmt.Sprintf("benchmarks are between %s and %s", j.describeRank(0), j.describeRank(j.benchPartner)))
	}
}
