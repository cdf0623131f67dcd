// Package info implements `ferry info`. It lists the components with their availability, the networks, and the
// parameters with their values and sources.
package info

import (
	"context"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ferrympi/ferry/cmd/ferry/internal/exit"
	"github.com/ferrympi/ferry/cmd/ferry/internal/settings"
	"github.com/ferrympi/ferry/cmd/ferry/internal/version"
	"github.com/ferrympi/ferry/config"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/text"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/plugin/host"
)

// Param is one parameter.
type Param struct {
	framework.ParamSpec
	Value  string `json:"value"`
	Source string `json:"source"`
}

// Component is one component, compiled in or known by name only.
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

// Info is the output of the command.
type Info struct {
	Version    string      `json:"version"`
	Components []Component `json:"components"`
	Networks   []Network   `json:"networks"`
	// Parameters without a component.
	Params    []Param           `json:"params"`
	Libraries []version.Library `json:"libraries"`
}

// Command returns the command.
func Command() *cobra.Command {
	var all bool
	var pattern, asked string
	cmd := &cobra.Command{
		Use:   "info",
		Short: "Show components, networks and parameters",
		Long: `Show the components of this ferry, whether each can be used here, and if not,
why; the networks that libfabric offers; and the parameters that have been set.
A plugin is started and ended again.

--params shows the parameters that match a pattern, such as "btl.shm.*"; a word
without * matches every name that contains it. --all shows everything.`,
		Example: "  ferry info --params eager",
		Args:    cobra.NoArgs,
	}
	f := cmd.Flags()
	f.BoolVar(&all, "all", false, "show all parameters, devices and library versions too")
	f.StringVar(&pattern, "params", "", "show only the parameters whose names match `PATTERN`")
	var asJSON settings.JSON
	asJSON.Flag(f, "write everything as JSON")
	f.StringVar(&asked, "survey", "", "print what the library of an MTL offers")
	_ = f.MarkHidden("survey") // Fails only for a missing flag.
	cmd.MarkFlagsMutuallyExclusive("all", "params", "survey")
	set := settings.Flag(f)
	settings.Complete(cmd, map[string]cobra.CompletionFunc{"set": settings.Set, "params": settings.Parameter})
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if asked != "" {
			candidates, err := surveyMTL(cmd.Context(), asked)
			if err != nil {
				return err
			}
			return settings.PrintJSON(cmd.OutOrStdout(), candidates)
		}
		if asJSON == settings.Stdout && (all || pattern != "") {
			return exit.Usagef("--json is for standard output, as the text of --all and --params: leave one out, or use --json=FILE")
		}
		output, err := asJSON.Open(cmd.OutOrStdout())
		if err != nil {
			return err
		}
		defer output.Close()
		info, err := collectInfo(cmd, *set, pattern == "" || asJSON != "")
		if err != nil {
			return err
		}
		return output.Write(info, func() error {
			width := text.Width(cmd.OutOrStdout())
			out := info.format(all, width)
			if pattern != "" {
				var err error
				if out, err = info.formatMatching(pattern, width); err != nil {
					return err
				}
			}
			_, err := io.WriteString(cmd.OutOrStdout(), out) // In one write, because several ranks may print it.
			return err
		})
	}
	return cmd
}

// checkPlugin starts a plugin, because its file alone does not show whether it starts.
func checkPlugin(ctx context.Context, c *Component, component framework.Component, values *framework.Values) {
	params := component.Params()
	if values.Decode(c.Framework+"."+c.Name, params) != nil {
		return // Survey has reported the error.
	}
	if err := host.Try(ctx, component, params); err != nil {
		c.Status, c.Reason = framework.StatusFailed.String(), strings.TrimPrefix(err.Error(), c.Framework+" "+c.Name+": ")
	}
}

func collectInfo(cmd *cobra.Command, set []string, networks bool) (*Info, error) {
	reg := settings.Registry()
	values, err := settings.LoadForUser(reg, set)
	if err != nil {
		return nil, err
	}
	info := &Info{Version: version.String(), Libraries: version.Libraries(), Components: []Component{}, Networks: []Network{}, Params: []Param{}}
	owners := map[string]int{} // Index of a component by its parameter prefix.
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
				if _, isPlugin := framework.As[config.Plugged](built); isPlugin && networks && v.Status == framework.StatusUsable {
					checkPlugin(cmd.Context(), &c, built, values)
				}
				if _, asks := framework.As[mtl.Surveyor](built); asks && networks && v.Status == framework.StatusUsable {
					info.Networks = append(info.Networks, surveyNetwork(cmd.Context(), v.Name, set))
				}
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
