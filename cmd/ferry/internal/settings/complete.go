package settings

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ferrympi/ferry/framework"
)

// Complete registers the values of a command's flags. Other flags of numbers and times have no completions, and the rest completes files.
func Complete(cmd *cobra.Command, values map[string]cobra.CompletionFunc) {
	for name, f := range values {
		if err := cmd.RegisterFlagCompletionFunc(name, f); err != nil {
			panic(fmt.Sprintf("settings: completion of %s: %v", cmd.Name(), err)) // The command has no such flag.
		}
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if _, isKnown := cmd.GetFlagCompletionFunc(f.Name); !isKnown && slices.Contains([]string{"int", "duration", "float64", "intSlice"}, f.Value.Type()) {
			_ = cmd.RegisterFlagCompletionFunc(f.Name, None) // It fails for unknown flags only.
		}
	})
}

// Folder completes a folder.
func Folder(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveFilterDirs
}

// None completes a value that is neither a file nor one of a list.
var None cobra.CompletionFunc = cobra.NoFileCompletions

// OneOf completes one of some values.
func OneOf(values ...string) cobra.CompletionFunc {
	return cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
}

// ListOf completes a list of values that are separated by commas. With ^ in front it is a list of exclusions.
func ListOf(values func() []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, given string) ([]string, cobra.ShellCompDirective) {
		return listed(given, values()), cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
	}
}

// listed returns the lists that a list may become by one value more.
func listed(given string, values []string) (lists []string) {
	rest, isExclusion := strings.CutPrefix(given, "^")
	before := rest[:strings.LastIndexByte(rest, ',')+1]
	prefix := before
	if isExclusion {
		prefix = "^" + before
	}
	for _, v := range values {
		if !slices.Contains(strings.Split(before, ","), v) {
			lists = append(lists, prefix+v)
		}
	}
	return lists
}

// Parameter completes the name of a parameter, as in `ferry info --params`.
func Parameter(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	var names []string
	if values, err := Registry().Defaults(); err == nil {
		names = values.Names()
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// Set completes NAME=VALUE. Parameters with choices, booleans and the lists of components have values.
func Set(_ *cobra.Command, _ []string, given string) (all []string, _ cobra.ShellCompDirective) {
	const noSpace = cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
	reg := Registry()
	values, err := reg.Defaults()
	if err != nil {
		return nil, noSpace
	}
	name, value, hasName := strings.Cut(given, "=")
	if !hasName {
		for _, name := range values.Names() {
			all = append(all, name+"=")
		}
		return all, noSpace
	}
	choices, isList := choicesOf(reg, values, name)
	if isList {
		choices = listed(value, choices)
	}
	for _, c := range choices {
		all = append(all, name+"="+c)
	}
	if isList {
		return all, noSpace
	}
	return all, cobra.ShellCompDirectiveNoFileComp
}

// choicesOf returns the values that a parameter is known to take, and whether it takes a list of them.
func choicesOf(reg *framework.Registry, values *framework.Values, name string) (choices []string, isList bool) {
	for _, c := range reg.Components(framework.Kind(name)) {
		choices = append(choices, c.Info().Name)
	}
	if len(choices) > 0 {
		return choices, true
	}
	spec, _ := values.Spec(name)
	switch {
	case len(spec.Choices) > 0:
		return spec.Choices, spec.Type == framework.TypeList
	case spec.Type == framework.TypeBool:
		return []string{"true", "false"}, false
	}
	return nil, false
}
