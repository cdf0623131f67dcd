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

// Exclusions say which cases are known to fail, and why. They still run, so that
// an exclusion that has had its day is noticed. A nil *Exclusions excludes
// nothing.
type Exclusions struct{ entries []exclusion }

type exclusion struct {
	Stack    string `yaml:"stack"`    // pattern as for path.Match
	Case     string `yaml:"case"`     // regular expression for the whole name
	Versions string `yaml:"versions"` // "libfabric >=1.15, <1.20"; empty: all
	Says     string `yaml:"says"`     // regular expression that the failure's reason contains; empty: any failure
	Reason   string `yaml:"reason"`
	Link     string `yaml:"link"`

	location      string // it stands, for people
	casePattern   *regexp.Regexp
	versions      *versionRange
	reasonPattern *regexp.Regexp
}

//go:embed exclude.yaml
var builtIn []byte

// BuiltIn are ferry's own exclusions: those of exclude.yaml, and what mtl/ofi knows of
// libfabric's providers and can't help.
func BuiltIn() (*Exclusions, error) {
	x, err := ParseExclusions("exclude.yaml", builtIn)
	if err != nil {
		return nil, err
	}
	return x, x.addKnownFailures(ofi.Known())
}

// addProviders adds the failures that are expected of providers.
func (x *Exclusions) addKnownFailures(known []ofi.Provider) error {
	for _, p := range known {
		for _, f := range p.Facts {
			if f.Remedy != ofi.Expect {
				continue
			}
			e := exclusion{location: "what is known of " + p.Name, Stack: "*+ofi " + p.Name, Case: f.Fails, Reason: f.What, Link: f.Shown}
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

// ParseExclusions reads a file such as exclude.yaml. Everything in it must
// be understood: an entry with a key too many would exclude something else than
// its author meant. Errors begin with the file's name.
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

// compile checks an entry and makes it ready for use.
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

// covers says whether the entry is about this stack, as it is here.
func (e *exclusion) matchesStack(s report.Stack) bool {
	ok, _ := path.Match(e.Stack, s.Name) // compile has seen that it is a pattern
	return ok && (e.versions == nil || e.versions.contains(s.Library))
}

// is says whether the entry is about this row of such a stack. One that passes says
// nothing that it could be told by.
func (e *exclusion) matchesRow(s report.Stack, row *report.Row) bool {
	return e.matchesStack(s) && e.casePattern.MatchString(row.Case) && (row.Status == report.Pass || e.reasonPattern.MatchString(row.Reason))
}

// Apply marks the row if it is excluded, which turns a failure into a skip. Rows
// that did not run stay as they are.
func (x *Exclusions) Apply(s report.Stack, row *report.Row) {
	if x == nil || !row.Status.Bad() && row.Status != report.Pass {
		return
	}
	i := slices.IndexFunc(x.entries, func(e exclusion) bool { return e.matchesRow(s, row) })
	if i < 0 {
		return
	}
	row.Excluded = x.entries[i].Reason
	if link := x.entries[i].Link; link != "" {
		row.Excluded += " (" + link + ")"
	}
	if row.Status.Bad() {
		row.Reason = fmt.Sprintf("excluded: %s; it was a %s: %s", row.Excluded, row.Status, row.Reason)
		row.Status = report.Skip
	}
}

// Notes names the exclusions that a full run had no case for, although it had the
// stack: the case was renamed, or its name is misspelt.
func (x *Exclusions) Notes(r *report.Report) []string {
	if x == nil || r.Suite != "full" || r.Partial != "" {
		return nil
	}
	var notes []string
	for _, e := range x.entries {
		stack, meant := "", false
		for _, s := range r.Stacks {
			if !e.matchesStack(s) || s.Reason != "" {
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

// A versionRange is a library and the versions of it that are meant.
type versionRange struct {
	library string
	bounds  version.Constraints
}

// parseVersions reads "NAME <1.20" or "NAME >=1.15, <1.20".
func parseVersions(text string) (*versionRange, error) {
	library, rest, _ := strings.Cut(strings.TrimSpace(text), " ")
	bounds, err := version.NewConstraint(rest)
	if err != nil {
		return nil, fmt.Errorf("versions %q are not like \"libfabric >=1.15, <1.20\": %w", text, err)
	}
	return &versionRange{library, bounds}, nil
}

// has says whether a library such as "libfabric 1.17" is in the range. One that
// doesn't say its version is not. What is tried before a release counts as that.
func (v *versionRange) contains(library string) bool {
	name, text, _ := strings.Cut(library, " ")
	have, err := version.NewVersion(text)
	return err == nil && name == v.library && v.bounds.Check(have.Core())
}
