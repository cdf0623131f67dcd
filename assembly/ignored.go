package assembly

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/ferrympi/ferry/config"
)

// ignored collects the parts of the configuration that have no effect, until there is a log
// for the warnings.
type ignored struct {
	unknownVariables []string
	skippedFile      string
	skipReason       error
}

func (i *ignored) foreign(variables []string) { i.unknownVariables = variables }

func (i *ignored) skipped(file string, reason error) { i.skippedFile, i.skipReason = file, reason }

func (i *ignored) log(log *slog.Logger) {
	if len(i.unknownVariables) > 0 {
		log.Warn("unknown variables in the environment are ignored; other software may use them", "variables", strings.Join(i.unknownVariables, ", "))
	}
	if i.skipReason != nil {
		log.Warn(fmt.Sprintf("configuration file %s is ignored, because it %v; %s", i.skippedFile, i.skipReason, config.SkippedRemedy))
	}
}
