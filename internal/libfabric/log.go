package libfabric

import "strings"

// LogEnvironment is what a process must have in its environment, before it loads
// the library, so that the library writes to standard error what its providers
// find.
func LogEnvironment() []string { return []string{"FI_LOG_LEVEL=info"} }

// LogReason returns the last thing that a provider said in what a process with
// LogEnvironment wrote to standard error: where it offers nothing, that is most
// often why. Of a layered provider, "verbs;ofi_rxm", the lower one counts. It is
// empty if there is nothing: not all providers say why they leave.
func LogReason(provider, log string) string {
	core, _, _ := strings.Cut(strings.ToLower(provider), ";")
	reason := ""
	for line := range strings.Lines(log) {
		// libfabric:PID:SECONDS:LAYER:PROVIDER:SUBSYSTEM:FUNCTION():LINE<LEVEL> TEXT
		part := strings.SplitN(line, ":", 8)
		if len(part) < 8 || part[0] != "libfabric" || part[4] != core {
			continue
		}
		_, text, _ := strings.Cut(part[7], "> ")
		// What its parameters are it says again and again.
		if text = strings.TrimSpace(text); text != "" && !strings.HasPrefix(part[6], "fi_param_") {
			reason = text
		}
	}
	return reason
}
