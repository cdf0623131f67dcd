// Package info is `ferry info`: what is compiled in, whether it can be used
// here, and every parameter with its value and where that came from.
package info

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/ferrympi/ferry/cmd/ferry/internal/settings"
	"github.com/ferrympi/ferry/cmd/ferry/internal/version"
	"github.com/ferrympi/ferry/config"
	"github.com/ferrympi/ferry/framework"
)

// Param is one parameter.
type Param struct {
	framework.ParamSpec
	Value  string `json:"value"`
	Source string `json:"source"`
}

// Component is one component, compiled in or only known by name.
type Component struct {
	Framework string  `json:"framework"`
	Name      string  `json:"name"`
	Version   string  `json:"version"`
	Summary   string  `json:"summary,omitempty"`
	Priority  int     `json:"priority"`
	Status    string  `json:"status"`
	Reason    string  `json:"reason"`
	Params    []Param `json:"params"`
}

// Tuned says what became of the result of `ferry tune`.
type Tuned struct {
	State    string     `json:"state"`              // "used", "none", "off" or "ignored"
	File     string     `json:"file,omitempty"`     // if there is one
	Measured *time.Time `json:"measured,omitempty"` // if it is used
	Changed  int        `json:"changed,omitempty"`  // parameters that are not at their defaults for it
	Reason   string     `json:"reason,omitempty"`   // why it is off or ignored
}

// Info is what the command prints.
type Info struct {
	Version    string            `json:"version"`
	Tuned      Tuned             `json:"tuned"`
	Components []Component       `json:"components"`
	Params     []Param           `json:"params"` // those that belong to no component
	Libraries  []version.Library `json:"libraries"`
}

// Command returns the command.
func Command() *cobra.Command {
	var all, asJSON bool
	cmd := &cobra.Command{
		Use:   "info",
		Short: "Show components, parameters and library versions",
		Long: `Show components, parameters and library versions.

Without --all only the parameters are shown that are for every user, or that
something has set.`,
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	f.BoolVar(&all, "all", false, "show the parameters of all levels, and library versions")
	f.BoolVar(&asJSON, "json", false, "print everything as JSON")
	set := settings.Flag(f)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		info, err := collect(cmd, *set)
		if err != nil {
			return err
		}
		if asJSON {
			return settings.PrintJSON(cmd.OutOrStdout(), info)
		}
		return info.print(cmd.OutOrStdout(), all)
	}
	return cmd
}

func collect(cmd *cobra.Command, set []string) (*Info, error) {
	reg := settings.Registry()
	values, tuned, err := settings.Load(reg, nil, set)
	if err != nil {
		return nil, err
	}
	info := &Info{Version: version.String(), Tuned: tunedOf(tuned), Libraries: version.Libraries(), Components: []Component{}, Params: []Param{}}
	owners := map[string]int{} // a component's parameter prefix to its index
	for _, kind := range reg.Kinds() {
		verdicts, err := reg.Survey(cmd.Context(), kind, values)
		if err != nil {
			return nil, err
		}
		for _, v := range verdicts {
			c := Component{
				Framework: string(v.Kind), Name: v.Name, Priority: v.Priority,
				Status: v.Status.String(), Reason: v.Why(), Params: []Param{},
			}
			if built, ok := reg.Lookup(v.Kind, v.Name); ok {
				c.Version, c.Summary = built.Info().Version, built.Info().Summary
			}
			owners[c.Framework+"."+c.Name] = len(info.Components)
			info.Components = append(info.Components, c)
		}
	}
	for _, name := range values.Names() {
		spec, _ := values.Spec(name)
		value, _ := values.Get(name)
		spec.Default = spec.Redact(spec.Default)
		p := Param{ParamSpec: spec, Value: spec.Redact(value.Text), Source: value.Source}
		owner := spec.Name[:max(0, strings.LastIndexByte(spec.Name, '.'))]
		if i, ok := owners[owner]; ok {
			info.Components[i].Params = append(info.Components[i].Params, p)
		} else {
			info.Params = append(info.Params, p)
		}
	}
	return info, nil
}

func tunedOf(t config.Tuned) Tuned {
	switch {
	case t.Off != "":
		return Tuned{State: "off", Reason: config.UseTuned + " is off (" + t.Off + ")"}
	case t.Err != nil:
		return Tuned{State: "ignored", File: t.File, Reason: t.Err.Error()}
	case t.Result != nil:
		return Tuned{State: "used", File: t.File, Measured: &t.Result.Measured, Changed: len(t.Result.Changed())}
	}
	return Tuned{State: "none"}
}

func (t Tuned) String() string {
	switch t.State {
	case "used":
		return fmt.Sprintf("tuned: %s, measured %s; parameters not at their defaults: %d",
			t.File, t.Measured.Local().Format(time.DateTime), t.Changed)
	case "none":
		return "not tuned: `ferry tune` measures what is best on this machine"
	}
	return "not tuned: " + t.Reason
}

func (info *Info) print(w io.Writer, all bool) error {
	var b bytes.Buffer // written at once: several ranks may print it
	t := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	fmt.Fprintf(t, "ferry %s\n%s\n\nFRAMEWORK\tCOMPONENT\tPRIORITY\tSTATUS\tWHAT OR WHY NOT\n", info.Version, info.Tuned)
	params := slices.Clone(info.Params)
	for _, c := range info.Components {
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\n", c.Framework, c.Name, c.Priority, c.Status, cmp.Or(c.Reason, c.Summary))
		params = append(params, c.Params...)
	}
	slices.SortFunc(params, func(a, b Param) int { return strings.Compare(a.Name, b.Name) })
	fmt.Fprintln(t, "\nPARAMETER\tVALUE\tDEFAULT\tSOURCE\tLEVEL\tWHAT")
	for _, p := range params {
		isSet := p.Source != framework.SourceDefault && p.Source != framework.SourceManifest
		if all || p.Level == framework.LevelUser || isSet {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", p.Name, cmp.Or(p.Value, `""`), cmp.Or(p.Default, `""`), p.Source, p.Level, p.Doc)
		}
	}
	if all {
		fmt.Fprintln(t, "\nLIBRARY\tVERSION")
		for _, l := range info.Libraries {
			fmt.Fprintf(t, "%s\t%s\n", l.Name, l.Version)
		}
	} else {
		fmt.Fprintln(t, "\nferry info --all shows the parameters of every level, and library versions.")
	}
	t.Flush() // into memory: it can't fail
	_, err := w.Write(b.Bytes())
	return err
}
