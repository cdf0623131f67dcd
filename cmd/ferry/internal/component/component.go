// Package component implements `ferry component`, for authors of components.
package component

import (
	"github.com/spf13/cobra"
)

// Command returns the command.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "component",
		Short: "Help with components of your own",
	}
	cmd.AddCommand(newCommand(), checkCommand(), registerCommand())
	return cmd
}
