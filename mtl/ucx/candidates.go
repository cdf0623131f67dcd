package ucx

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/netaddr"
	"github.com/ferrympi/ferry/internal/ucp"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/base"
	"github.com/ferrympi/ferry/mtl/trial"
)

// candidate is a class of transports, or the transports of the user's UCX_TLS, with the verdict about it.
type candidate struct {
	// name is the name of the class, or "UCX_TLS=..." if that selects the transports.
	name string
	// ucxTLS is the value of UCX_TLS, or empty for that of the environment.
	ucxTLS      string
	resources   []ucp.Resource
	interfaces  []netaddr.Interface
	ucxSettings []ucp.Setting
	// packetBytes is the length of the longest message in one packet.
	packetBytes int
	isNodeLocal bool
	// isUnavailable is set if UCX has no transport of the class here.
	isUnavailable bool
	// refusal is the reason not to use the candidate, or empty.
	refusal string
	// hasFailed is set if refusal is the error of Open or of the self-test.
	hasFailed bool
}

// devices lists the devices of a candidate, each once.
func (c *candidate) devices() string {
	var names []string
	for _, r := range c.resources {
		if r.Transport != "self" && !slices.Contains(names, r.Device) {
			names = append(names, r.Device)
		}
	}
	return strings.Join(names, ",")
}

// jobTraits are the properties of the job that candidates depend on.
type jobTraits struct {
	// isOneNode is set if all processes of the job are on this node.
	isOneNode bool
	// isUnrequested is set if no MTL was requested.
	isUnrequested bool
}

// choose returns the candidates for Open in order of preference, followed by the refused and the unavailable ones.
func choose(f *survey, p *params, j jobTraits) []candidate {
	if f.userTLS != "" {
		return []candidate{chooseUserTLS(f, p, j)}
	}
	var all []candidate
	for _, name := range classOrder(p) {
		c, _ := classOf(name)
		all = append(all, assess(c, f, p, j))
	}
	slices.SortStableFunc(all, func(a, b candidate) int { return verdictOrder(a) - verdictOrder(b) })
	return all
}

// verdictOrder sorts usable candidates before refused ones, and those before unavailable ones.
func verdictOrder(c candidate) int {
	switch {
	case c.isUnavailable:
		return 2
	case c.refusal != "":
		return 1
	}
	return 0
}

// classOrder returns the names of all classes, those in provider_include first.
func classOrder(p *params) []string {
	names := slices.Clone(p.ProviderInclude)
	for _, c := range classNames() {
		if !slices.Contains(names, c) {
			names = append(names, c)
		}
	}
	return names
}

func assess(of class, f *survey, p *params, j jobTraits) candidate {
	c := candidate{name: of.name, ucxTLS: of.ucxTLS, packetBytes: of.packetBytes, interfaces: f.interfaces}
	own := of.ownResources(f.resources)
	c.resources = own
	if !of.isNodeLocal {
		c.resources = f.permitted(own, p)
	}
	included := len(p.ProviderInclude) > 0
	c.isNodeLocal = of.isNodeLocal || isNodeLocal(c.resources)
	switch {
	case len(own) == 0:
		c.isUnavailable, c.refusal = true, fmt.Sprintf("UCX %v has no transport of class %s here (%s): it was not compiled in, or finds no device", f.libraryVersion, of.name, strings.Join(of.transportPatterns, ", "))
	case included && !slices.Contains(p.ProviderInclude, of.name):
		c.refusal = "not in mtl.ucx.provider_include"
	case !included && slices.Contains(p.ProviderExclude, of.name):
		c.refusal = "in mtl.ucx.provider_exclude"
	case !included && of.needsRequest:
		c.refusal = "used only if mtl.ucx.provider_include names it"
	case j.isUnrequested && !of.needsHardware:
		c.refusal = "not a network device, and no MTL was requested"
	case len(c.resources) == 0:
		c.refusal = fmt.Sprintf("none of its devices (%s) is permitted by %s", resourceNames(own, nil), f.deviceRule(p))
	case c.isNodeLocal && !j.isOneNode:
		c.refusal = "it reaches only this node, and the job has processes on others"
	}
	c.ucxSettings = []ucp.Setting{{Name: "TLS", Value: of.ucxTLS}}
	c.setRendezvousThreshold()
	c.limitConnections(f.libraryVersion)
	if devices := c.devices(); !of.isNodeLocal && devices != "" && f.userDevices == "" {
		c.ucxSettings = append(c.ucxSettings, ucp.Setting{Name: "NET_DEVICES", Value: devices})
	}
	return c
}

// chooseUserTLS returns the candidate for the transports of the user's UCX_TLS.
func chooseUserTLS(f *survey, p *params, j jobTraits) candidate {
	c := candidate{name: "UCX_TLS=" + f.userTLS, packetBytes: 900, resources: f.resources, interfaces: f.interfaces}
	c.isNodeLocal = isNodeLocal(c.resources)
	c.setRendezvousThreshold()
	c.limitConnections(f.libraryVersion)
	switch {
	case j.isUnrequested && !c.usesHardware():
		c.refusal = "not a network device, and no MTL was requested"
	case c.isNodeLocal && !j.isOneNode:
		c.refusal = "it reaches only this node, and the job has processes on others"
	}
	if f.userDevices == "" {
		var names []string
		for _, r := range f.permitted(f.resources, p) {
			if !isMemory(r.Device) && !slices.Contains(names, r.Device) {
				names = append(names, r.Device)
			}
		}
		if len(names) > 0 {
			c.ucxSettings = append(c.ucxSettings, ucp.Setting{Name: "NET_DEVICES", Value: strings.Join(names, ",")})
		}
	}
	return c
}

// setRendezvousThreshold makes messages longer than a packet stay with their sender until they are received. UCX would send
// some of them in several packets, and the receive of such a message would never end after the sender has failed. If the
// user sets lengths, UCX's own protocol remains.
func (c *candidate) setRendezvousThreshold() {
	if userSets(func(name string) bool { return name == "UCX_RNDV_THRESH" || strings.HasSuffix(name, "SEG_SIZE") }) {
		c.packetBytes = 0
		return
	}
	c.ucxSettings = append(c.ucxSettings, ucp.Setting{Name: "RNDV_THRESH", Value: strconv.Itoa(c.packetBytes + 1)})
}

// limitConnections restricts two processes to one connection over tcp, for versions of UCX that abort when a peer leaves during
// the connection. With two devices UCX would also connect by the device that the first message does not use, and a receiver could
// process that request after the sender has left.
func (c *candidate) limitConnections(v ucp.Version) {
	const name = "MAX_RNDV_RAILS"
	if !c.usesTCP() || c.usesHardware() || !v.Before(fixesConnectAbort) ||
		userSets(func(set string) bool { return set == "UCX_"+name || set == "UCX_MAX_RNDV_LANES" }) {
		return
	}
	c.ucxSettings = append(c.ucxSettings, ucp.Setting{Name: name, Value: "1"})
}

// usesHardware reports whether a transport uses a network device.
func (c *candidate) usesHardware() bool {
	return slices.ContainsFunc(classes, func(of class) bool { return of.needsHardware && len(of.ownResources(c.resources)) > 0 })
}

// fixesConnectAbort is the first version of UCX without an assertion that aborts the process when a peer leaves while it connects
// over tcp (ucp_request_send_state_ff: "got REP message"). Older versions with assertions, such as Debian's 1.13.1, have it. In mode
// none it is rarer.
var fixesConnectAbort = ucp.Version{Major: 1, Minor: 14}

// requiresCache is the first version of UCX that, without a registration cache, crashes in peer mode when a peer leaves in the middle
// of a long message (ucp_memh_invalidate). 1.22 is also affected.
var requiresCache = ucp.Version{Major: 1, Minor: 16}

func (c *candidate) usesTCP() bool {
	return slices.ContainsFunc(c.resources, func(r ucp.Resource) bool { return r.Transport == "tcp" })
}

// hazards describes observed effects of a peer's failure on other processes (docs/provider-defects.md, UCX).
func (c *candidate) hazards(v ucp.Version) (notes []string) {
	if c.usesTCP() {
		notes = append(notes, fmt.Sprintf("a peer that fails while it connects over tcp may abort this process, rarely: UCX %v", v))
	}
	if c.usesSharedQueue() {
		notes = append(notes, "a peer that is killed while it writes into UCX's shared memory may block messages between others, which get an error: pml.cm.shared_memory=on, the default, avoids that memory")
	}
	return notes
}

// registersMemory reports whether a transport registers memory and keeps the registration.
func (c *candidate) registersMemory() bool {
	return slices.ContainsFunc(c.resources, func(r ucp.Resource) bool {
		return !slices.Contains([]string{"self", "tcp", "posix", "sysv", "xpmem", "cma"}, r.Transport)
	})
}

// errorMode returns the error mode of a candidate, with a note if it differs from the parameter. Over tcp UCX can report failures
// without peer mode, too.
func (c *candidate) errorMode(p *params, v ucp.Version) (mode, note string) {
	if p.ErrorMode == "peer" && c.usesTCP() && v.Before(fixesConnectAbort) {
		return "none", fmt.Sprintf("error mode none: in peer mode UCX %v may abort the process when a peer leaves while it connects over tcp", v)
	}
	if p.ErrorMode == "peer" && !v.Before(requiresCache) {
		for _, name := range []string{"UCX_MEM_EVENTS", "UCX_RCACHE_ENABLE"} {
			if value := strings.ToLower(os.Getenv(name)); value != "" && strings.HasPrefix("no", value) || value == "0" || value == "off" {
				return "none", fmt.Sprintf("error mode none: in peer mode UCX %v crashes with %s=%s when a peer leaves", v, name, value)
			}
		}
	}
	return p.ErrorMode, ""
}

// medium returns the medium between the processes of a node-local candidate.
func (c *candidate) medium() trial.Medium {
	if slices.ContainsFunc(c.resources, func(r ucp.Resource) bool { return isMemory(r.Device) && r.Transport != "self" }) {
		return trial.Memory
	}
	return trial.Loopback
}

// isMemory reports whether a device is memory instead of a network interface.
func isMemory(device string) bool { return strings.HasPrefix(device, "memory") || device == "cuda" }

// permitted returns the resources on permitted devices.
func (f *survey) permitted(all []ucp.Resource, p *params) (some []ucp.Resource) {
	for _, r := range all {
		switch {
		case isMemory(r.Device) || f.userDevices != "":
		case len(p.DeviceInclude) > 0:
			if !matchesAny(p.DeviceInclude, r.Device) {
				continue
			}
		case matchesAny(p.DeviceExclude, r.Device) || netaddr.Secondary(f.interfaces, r.Device) != "":
			continue
		}
		some = append(some, r)
	}
	return some
}

// deviceRule names the rule that excludes devices, for errors.
func (f *survey) deviceRule(p *params) string {
	if len(p.DeviceInclude) > 0 {
		return fmt.Sprintf("mtl.ucx.device_include=%s", strings.Join(p.DeviceInclude, ","))
	}
	return fmt.Sprintf("mtl.ucx.device_exclude=%s, or they are secondary interfaces", strings.Join(p.DeviceExclude, ","))
}

// matchesAny reports whether a device matches one of the patterns, with or without its port.
func matchesAny(patterns []string, name string) bool {
	device, _, _ := strings.Cut(name, ":")
	return base.MatchesAny(patterns, name, device)
}

// checkNames rejects unknown names of classes.
func checkNames(p *params) error {
	for _, list := range []struct {
		name  string
		names []string
	}{{"provider_include", p.ProviderInclude}, {"provider_exclude", p.ProviderExclude}} {
		for _, given := range list.names {
			if _, ok := classOf(given); !ok {
				return fmt.Errorf("%w: mtl.ucx.%s: unknown transport class %q; the nearest name is %q; the classes are %s",
					framework.ErrConfig, list.name, given, framework.Nearest(given, classNames()), strings.Join(classNames(), ", "))
			}
		}
	}
	return nil
}

// summarize lists candidates with their reasons.
func summarize(all []candidate) string {
	var lines []string
	for _, c := range all {
		line := c.name
		if d := c.devices(); d != "" {
			line += " on " + d
		}
		if c.refusal != "" {
			line += ": " + c.refusal
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "; ")
}

// noCandidateError returns the error if no candidate is left.
func noCandidateError(f *survey, all []candidate, p *params) error {
	why := framework.ErrUnsupported
	asked := ""
	if len(p.ProviderInclude) > 0 && f.userTLS == "" {
		all = slices.DeleteFunc(slices.Clone(all), func(c candidate) bool { return !slices.Contains(p.ProviderInclude, c.name) })
	}
	if len(p.ProviderInclude) > 0 {
		why, asked = framework.ErrConfig, fmt.Sprintf(" with mtl.ucx.provider_include=%q", strings.Join(p.ProviderInclude, ","))
	}
	if len(p.DeviceInclude) > 0 {
		why = framework.ErrConfig
		asked += fmt.Sprintf(" with mtl.ucx.device_include=%q", strings.Join(p.DeviceInclude, ","))
	}
	return fmt.Errorf("%s: %w: no transport of UCX %v can be used here%s: %s", component, why, f.libraryVersion, asked, summarize(all))
}

// toCandidates converts candidates for a Description. chosen is the index of the used one, or -1.
func toCandidates(all []candidate, chosen int) []mtl.Candidate {
	out := make([]mtl.Candidate, len(all))
	for i, c := range all {
		name := c.name
		if d := c.devices(); d != "" {
			name += " on " + d
		}
		out[i] = mtl.Candidate{Name: name, Provider: c.name, Chosen: i == chosen, Unavailable: c.isUnavailable, Refused: c.refusal != "" && !c.isUnavailable, Failed: c.hasFailed, Reason: c.refusal}
		if chosen >= 0 && i != chosen && c.refusal == "" {
			out[i].Reason = all[chosen].name + " is preferred"
		}
	}
	return out
}
