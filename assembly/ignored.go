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
	variables []string
	file      string
	reason    error
}

func (i *ignored) foreign(variables []string) { i.variables = variables }

func (i *ignored) skipped(file string, reason error) { i.file, i.reason = file, reason }

func (i *ignored) log(log *slog.Logger) {
	if len(i.variables) > 0 {
		log.Warn("unknown variables in the environment are ignored; other software may use them", "variables", strings.Join(i.variables, ", "))
	}
	if i.reason != nil {
		log.Warn(fmt.Sprintf("configuration file %s is ignored, because it %v; %s", i.file, i.reason, config.SkippedRemedy))
	}
}
