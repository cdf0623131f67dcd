package cli

import (
	"bytes"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// listsInBash removes the backslash before a comma or a ^. Cobra's script escapes all special characters, and readline
// does not find the typed word in the result.
const listsInBash = `
__ferry_start_lists() {
    __start_ferry "$@"
    COMPREPLY=("${COMPREPLY[@]//\\,/,}")
    COMPREPLY=("${COMPREPLY[@]//\\^/^}")
}
`

// completeListsInBash makes the script of `ferry completion bash` complete lists with commas.
func completeListsInBash(root *cobra.Command) {
	bash, _, err := root.Find([]string{"completion", "bash"})
	if err != nil || bash.Name() != "bash" {
		return
	}
	bash.RunE = func(cmd *cobra.Command, _ []string) error {
		bare, err := cmd.Flags().GetBool("no-descriptions")
		if err != nil {
			return err
		}
		var script bytes.Buffer
		if err := root.GenBashCompletionV2(&script, !bare); err != nil {
			return err
		}
		start := []byte("-F __start_ferry ")
		text := bytes.ReplaceAll(script.Bytes(), start, []byte("-F __ferry_start_lists "))
		if bytes.Equal(text, script.Bytes()) {
			return fmt.Errorf("the script of this cobra has no %q", start)
		}
		i := bytes.LastIndex(text, []byte("\nif "))
		_, err = io.WriteString(cmd.OutOrStdout(), string(text[:i])+listsInBash+string(text[i:]))
		return err
	}
}
