package plan

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/go-version"
	"go.yaml.in/yaml/v3"

	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/report"
	"github.com/ferrympi/ferry/mtl/ofi"
)

// Exclusions list the cases that are known to fail, with reasons. The cases still run, so that an obsolete exclusion
// is noticed. A nil *Exclusions is empty.
type Exclusions struct{ entries []exclusion }

type exclusion struct {
	// Pattern of path.Match.
	Stack string `yaml:"stack"`
	// Regular expression for the whole name.
	Case string `yaml:"case"`
	// "libfabric >=1.15, <1.20", or "" for all.
	Versions string `yaml:"versions"`
	// Regular expression in the reason, or "" for any failure.
	Says   string `yaml:"says"`
	Reason string `yaml:"reason"`
	Link   string `yaml:"link"`

	// File and index, for messages.
	location      string
	casePattern   *regexp.Regexp
	versions      *versionRange
	reasonPattern *regexp.Regexp
}

//go:embed exclude.yaml
var builtIn []byte

// BuiltIn returns ferry's exclusions: exclude.yaml, and the known failures of libfabric's providers in mtl/ofi.
func BuiltIn() (*Exclusions, error) {
	x, err := ParseExclusions("exclude.yaml", builtIn)
	if err != nil {
		return nil, err
	}
	return x, x.addKnownFailures(ofi.Providers())
}

// addKnownFailures adds the expected failures of providers.
func (x *Exclusions) addKnownFailures(known []ofi.Provider) error {
	for _, p := range known {
		for _, f := range p.Quirks {
			if f.Remedy != ofi.ExpectFailures {
				continue
			}
			e := exclusion{location: "what is known of " + p.Name, Stack: "*+ofi " + p.Name, Case: f.FailingCases, Reason: f.Description, Link: f.Evidence}
			if v := f.Versions(); v != "" {
				e.Versions = "libfabric " + v
			}
			if err := e.compile(); err != nil {
				return fmt.Errorf("%s: %w", e.location, err)
			}
			x.entries = append(x.entries, e)
		}
	}
	return nil
}

// ParseExclusions parses a file such as exclude.yaml. Unknown keys are errors, because an entry without them would
// exclude other cases. Errors begin with the file name.
func ParseExclusions(file string, data []byte) (*Exclusions, error) {
	x := new(Exclusions)
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	if err := d.Decode(&x.entries); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: one list of exclusions is expected, and nothing after it", file)
	}
	for i := range x.entries {
		e := &x.entries[i]
		e.location = fmt.Sprintf("%s: exclusion %d", file, i+1)
		if err := e.compile(); err != nil {
			return nil, fmt.Errorf("%s (stack %q, case %q): %w", e.location, e.Stack, e.Case, err)
		}
	}
	return x, nil
}

// compile checks and compiles the patterns of an entry.
func (e *exclusion) compile() (err error) {
	for _, must := range []struct{ key, value string }{{"stack", e.Stack}, {"case", e.Case}, {"reason", e.Reason}} {
		if strings.TrimSpace(must.value) == "" {
			return fmt.Errorf("%s is missing", must.key)
		}
	}
	if _, err := path.Match(e.Stack, ""); err != nil {
		return fmt.Errorf("stack is not a pattern: %w", err)
	}
	if e.casePattern, err = regexp.Compile("^(?:" + e.Case + ")$"); err != nil {
		return fmt.Errorf("case is not a regular expression: %w", err)
	}
	if e.reasonPattern, err = regexp.Compile(e.Says); err != nil {
		return fmt.Errorf("says is not a regular expression: %w", err)
	}
	if e.Versions != "" {
		e.versions, err = parseVersions(e.Versions)
	}
	return err
}

// matchesStack reports whether the entry applies to this stack and its library version.
func (e *exclusion) matchesStack(s report.Stack) bool {
	ok, _ := path.Match(e.Stack, s.Name) // compile has checked the pattern.
	return ok && (e.versions == nil || e.versions.contains(s.Library))
}

// matchesRow reports whether the entry applies to a row. A row that passes has no reason to compare.
func (e *exclusion) matchesRow(s report.Stack, row *report.Row) bool {
	return e.matchesStack(s) && e.casePattern.MatchString(row.Case) && (row.Status == report.Pass || e.reasonPattern.MatchString(row.Reason))
}

// Apply marks an excluded row and turns a failure into a skip. Rows that did not run stay as they are.
func (x *Exclusions) Apply(s report.Stack, row *report.Row) {
	if x == nil || !row.Status.Bad() && row.Status != report.Pass {
		return
	}
	i := slices.IndexFunc(x.entries, func(e exclusion) bool { return e.matchesRow(s, row) })
	if i < 0 {
		return
	}
	row.ExclusionReason = x.entries[i].Reason
	if link := x.entries[i].Link; link != "" {
		row.ExclusionReason += " (" + link + ")"
	}
	if row.Status.Bad() {
		row.Reason = fmt.Sprintf("excluded: %s; it was a %s: %s", row.ExclusionReason, row.Status, row.Reason)
		row.Status = report.Skip
	}
}

// Notes lists the exclusions without a matching case in a full run that has their stack, because a case was renamed
// or is misspelled.
func (x *Exclusions) Notes(r *report.Report) []string {
	if x == nil || r.Suite != "full" || r.EndReason != "" {
		return nil
	}
	var notes []string
	for _, e := range x.entries {
		stack, meant := "", false
		for _, s := range r.Stacks {
			if !e.matchesStack(s) || s.AbsentReason != "" {
				continue
			}
			stack = s.Name
			meant = meant || slices.ContainsFunc(r.Rows, func(row report.Row) bool { return row.Stack == s.Name && e.casePattern.MatchString(row.Case) })
		}
		if stack != "" && !meant {
			notes = append(notes, fmt.Sprintf("%s matches no case of %s: %s", e.location, stack, e.Case))
		}
	}
	return notes
}

// A versionRange is a range of versions of a library.
type versionRange struct {
	library       string
	versionBounds version.Constraints
}

// parseVersions parses "NAME <1.20" or "NAME >=1.15, <1.20".
func parseVersions(text string) (*versionRange, error) {
	library, rest, _ := strings.Cut(strings.TrimSpace(text), " ")
	bounds, err := version.NewConstraint(rest)
	if err != nil {
		return nil, fmt.Errorf("versions %q are not like \"libfabric >=1.15, <1.20\": %w", text, err)
	}
	return &versionRange{library, bounds}, nil
}

// contains reports whether a library such as "libfabric 1.17" is in the range. A library without a version is not. A
// prerelease counts as its release.
func (v *versionRange) contains(library string) bool {
	name, text, _ := strings.Cut(library, " ")
	have, err := version.NewVersion(text)
	return err == nil && name == v.library && v.versionBounds.Check(have.Core())
}
