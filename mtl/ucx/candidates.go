package ucx

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/netaddr"
	"github.com/ferrympi/ferry/internal/ucp"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/trial"
)

// candidate is one class of transports, or what the user's UCX_TLS says, and what was decided
// about it.
type candidate struct {
	name        string // of the class; "UCX_TLS=..." where that says what is used
	tls         string // empty: the environment's
	resources   []ucp.Resource
	interfaces  []netaddr.Interface
	settings    []ucp.Setting
	packet      int
	local       bool
	unavailable bool   // UCX offers nothing for it
	refused     string // why it is not used, or not there
	failed      bool   // because it did not open, or failed its test
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

// job is what choosing needs to know of the job.
type job struct {
	oneNode bool // all of its processes are on this node
	fabric  bool // nobody has asked for an MTL
}

// choose orders what UCX offers: what Open tries, best first, then what is refused or not there,
// each with its reason.
func choose(f *found, p *params, j job) []candidate {
	if f.tls != "" {
		return []candidate{chooseUsers(f, p, j)}
	}
	var all []candidate
	for _, name := range order(p) {
		c, _ := classOf(name)
		all = append(all, judge(c, f, p, j))
	}
	slices.SortStableFunc(all, func(a, b candidate) int { return rank(a) - rank(b) })
	return all
}

// rank has what is tried first, then what is refused, then what is not there.
func rank(c candidate) int {
	switch {
	case c.unavailable:
		return 2
	case c.refused != "":
		return 1
	}
	return 0
}

// order is the names of all classes, those first that provider_include names.
func order(p *params) []string {
	names := slices.Clone(p.ProviderInclude)
	for _, c := range classNames() {
		if !slices.Contains(names, c) {
			names = append(names, c)
		}
	}
	return names
}

func judge(of class, f *found, p *params, j job) candidate {
	c := candidate{name: of.name, tls: of.tls, packet: of.packet, interfaces: f.interfaces}
	own := of.of(f.resources)
	c.resources = own
	if !of.local {
		c.resources = f.permitted(own, p)
	}
	included := len(p.ProviderInclude) > 0
	c.local = of.local || staysHere(c.resources)
	switch {
	case len(own) == 0:
		c.unavailable, c.refused = true, fmt.Sprintf("UCX %v has no transport of class %s here (%s): it was not compiled in, or finds no device", f.version, of.name, strings.Join(of.transports, ", "))
	case included && !slices.Contains(p.ProviderInclude, of.name):
		c.refused = "not in mtl.ucx.provider_include"
	case !included && slices.Contains(p.ProviderExclude, of.name):
		c.refused = "in mtl.ucx.provider_exclude"
	case !included && of.named:
		c.refused = "used only where mtl.ucx.provider_include names it"
	case j.fabric && !of.hardware:
		c.refused = "not a network device, and no MTL was requested"
	case len(c.resources) == 0:
		c.refused = fmt.Sprintf("none of its devices (%s) is permitted by %s", listed(own), f.deviceRule(p))
	case c.local && !j.oneNode:
		c.refused = "it never leaves the node, and the job has processes on others"
	}
	c.settings = []ucp.Setting{{Name: "TLS", Value: of.tls}}
	c.inOnePacket()
	c.byOneConnection(f.version)
	if devices := c.devices(); !of.local && devices != "" && f.devices == "" {
		c.settings = append(c.settings, ucp.Setting{Name: "NET_DEVICES", Value: devices})
	}
	return c
}

// chooseUsers is the one candidate where the user's UCX_TLS says what is used.
func chooseUsers(f *found, p *params, j job) candidate {
	c := candidate{name: "UCX_TLS=" + f.tls, packet: 900, resources: f.resources, interfaces: f.interfaces}
	c.local = staysHere(c.resources)
	c.inOnePacket()
	c.byOneConnection(f.version)
	switch {
	case j.fabric && !c.usesHardware():
		c.refused = "not a network device, and no MTL was requested"
	case c.local && !j.oneNode:
		c.refused = "it never leaves the node, and the job has processes on others"
	}
	if f.devices == "" {
		var names []string
		for _, r := range f.permitted(f.resources, p) {
			if !isMemory(r.Device) && !slices.Contains(names, r.Device) {
				names = append(names, r.Device)
			}
		}
		if len(names) > 0 {
			c.settings = append(c.settings, ucp.Setting{Name: "NET_DEVICES", Value: strings.Join(names, ",")})
		}
	}
	return c
}

// inOnePacket has longer messages than a packet stay with their sender until they are received.
// UCX would send some of them in several packets: who receives such a message whose sender dies
// waits for the rest for ever. Users who set the length themselves get what UCX does.
func (c *candidate) inOnePacket() {
	if userSets(func(name string) bool { return name == "UCX_RNDV_THRESH" || strings.HasSuffix(name, "SEG_SIZE") }) {
		c.packet = 0
		return
	}
	c.settings = append(c.settings, ucp.Setting{Name: "RNDV_THRESH", Value: strconv.Itoa(c.packet + 1)})
}

// byOneConnection has two processes connect once over tcp with a UCX that aborts when a peer goes meanwhile.
// Where there are two devices it would connect by both, and introduce itself by the one that the first
// message does not take: who has received the message may learn after its sender has gone that it was to
// answer.
func (c *candidate) byOneConnection(v ucp.Version) {
	const name = "MAX_RNDV_RAILS"
	if !c.usesTCP() || c.usesHardware() || !v.Before(abortsConnecting) ||
		userSets(func(set string) bool { return set == "UCX_"+name || set == "UCX_MAX_RNDV_LANES" }) {
		return
	}
	c.settings = append(c.settings, ucp.Setting{Name: name, Value: "1"})
}

// usesHardware reports whether a network's device is among them.
func (c *candidate) usesHardware() bool {
	return slices.ContainsFunc(classes, func(of class) bool { return of.hardware && len(of.of(c.resources)) > 0 })
}

// abortsConnecting is the first version of UCX without an assertion that ends the process when a peer
// goes while it connects over tcp (ucp_request_send_state_ff: "got REP message"). Older ones that were
// built with assertions, as Debian's 1.13.1 is, have it, in mode none more rarely.
var abortsConnecting = ucp.Version{Major: 1, Minor: 14}

// crashesUncached is the first version of UCX that crashes in peer mode when a peer goes in the middle of
// a long message, if it keeps no cache of registrations (ucp_memh_invalidate). 1.22 does, too.
var crashesUncached = ucp.Version{Major: 1, Minor: 16}

func (c *candidate) usesTCP() bool {
	return slices.ContainsFunc(c.resources, func(r ucp.Resource) bool { return r.Transport == "tcp" })
}

// hazards describes the observed effects of a death on survivors (docs/provider-defects.md, UCX).
func (c *candidate) hazards(v ucp.Version) (notes []string) {
	if c.usesTCP() {
		notes = append(notes, fmt.Sprintf("over tcp a peer that dies while it connects may end this process, rarely: UCX %v", v))
	}
	if c.queued() {
		notes = append(notes, "a peer that is killed while it writes into UCX's shared memory may stop messages between others, who are told: pml.cm.shared_memory=on, the default, keeps them out of it")
	}
	return notes
}

// registers reports whether a transport keeps memory registered. These go by addresses.
func (c *candidate) registers() bool {
	return slices.ContainsFunc(c.resources, func(r ucp.Resource) bool {
		return !slices.Contains([]string{"self", "tcp", "posix", "sysv", "xpmem", "cma"}, r.Transport)
	})
}

// errorMode returns the error mode that a candidate has. Over tcp UCX tells of the dead without peer
// mode, too, if it is asked to.
func (c *candidate) errorMode(p *params, v ucp.Version) (mode, note string) {
	if p.ErrorMode == "peer" && c.usesTCP() && v.Before(abortsConnecting) {
		return "none", fmt.Sprintf("error mode none: in peer mode UCX %v may end the process when a peer goes while it connects over tcp", v)
	}
	if p.ErrorMode == "peer" && !v.Before(crashesUncached) {
		for _, name := range []string{"UCX_MEM_EVENTS", "UCX_RCACHE_ENABLE"} {
			if value := strings.ToLower(os.Getenv(name)); value != "" && strings.HasPrefix("no", value) || value == "0" || value == "off" {
				return "none", fmt.Sprintf("error mode none: in peer mode UCX %v crashes with %s=%s when a peer goes", v, name, value)
			}
		}
	}
	return p.ErrorMode, ""
}

// medium returns the medium between processes of a local candidate.
func (c *candidate) medium() trial.Medium {
	if slices.ContainsFunc(c.resources, func(r ucp.Resource) bool { return isMemory(r.Device) && r.Transport != "self" }) {
		return trial.Memory
	}
	return trial.Loopback
}

// isMemory reports whether a device is none of a network.
func isMemory(device string) bool { return strings.HasPrefix(device, "memory") || device == "cuda" }

// permitted returns those of the resources whose devices may be used.
func (f *found) permitted(all []ucp.Resource, p *params) (some []ucp.Resource) {
	for _, r := range all {
		switch {
		case isMemory(r.Device) || f.devices != "":
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

// deviceRule names what says which devices may be used.
func (f *found) deviceRule(p *params) string {
	if len(p.DeviceInclude) > 0 {
		return fmt.Sprintf("mtl.ucx.device_include=%s", strings.Join(p.DeviceInclude, ","))
	}
	return fmt.Sprintf("mtl.ucx.device_exclude=%s, or they are secondary interfaces", strings.Join(p.DeviceExclude, ","))
}

// matchesAny reports whether name matches one of the patterns (path.Match), with or without its
// port. A pattern that is none matches itself.
func matchesAny(patterns []string, name string) bool {
	device, _, _ := strings.Cut(name, ":")
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, err := path.Match(p, name)
		short, _ := path.Match(p, device)
		return ok || short || err != nil && p == name
	})
}

// checkNames refuses names of classes that there are none of.
func checkNames(p *params) error {
	for _, list := range []struct {
		name  string
		names []string
	}{{"provider_include", p.ProviderInclude}, {"provider_exclude", p.ProviderExclude}} {
		for _, given := range list.names {
			if _, ok := classOf(given); !ok {
				return fmt.Errorf("%w: mtl.ucx.%s: no class of UCX's transports is called %q; the nearest name is %q; there are %s",
					framework.ErrConfig, list.name, given, framework.Nearest(given, classNames()), strings.Join(classNames(), ", "))
			}
		}
	}
	return nil
}

// summary lists candidates with their reasons.
func summary(all []candidate) string {
	var lines []string
	for _, c := range all {
		line := c.name
		if d := c.devices(); d != "" {
			line += " on " + d
		}
		if c.refused != "" {
			line += ": " + c.refused
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "; ")
}

// nothing says that no candidate is left to try, and why.
func nothing(f *found, all []candidate, p *params) error {
	why := framework.ErrUnsupported
	asked := ""
	if len(p.ProviderInclude) > 0 && f.tls == "" {
		all = slices.DeleteFunc(slices.Clone(all), func(c candidate) bool { return !slices.Contains(p.ProviderInclude, c.name) })
	}
	if len(p.ProviderInclude) > 0 {
		why, asked = framework.ErrConfig, fmt.Sprintf(" with mtl.ucx.provider_include=%q", strings.Join(p.ProviderInclude, ","))
	}
	if len(p.DeviceInclude) > 0 {
		why = framework.ErrConfig
		asked += fmt.Sprintf(" with mtl.ucx.device_include=%q", strings.Join(p.DeviceInclude, ","))
	}
	return fmt.Errorf("%s: %w: nothing that UCX %v offers here can be used%s: %s", component, why, f.version, asked, summary(all))
}

// described turns candidates into what people read; chosen is the index of the one that is
// used, or -1.
func described(all []candidate, chosen int) []mtl.Candidate {
	out := make([]mtl.Candidate, len(all))
	for i, c := range all {
		name := c.name
		if d := c.devices(); d != "" {
			name += " on " + d
		}
		out[i] = mtl.Candidate{Name: name, Provider: c.name, Chosen: i == chosen, Unavailable: c.unavailable, Refused: c.refused != "" && !c.unavailable, Failed: c.failed, Reason: c.refused}
		if chosen >= 0 && i != chosen && c.refused == "" {
			out[i].Reason = all[chosen].name + " is preferred"
		}
	}
	return out
}
