package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/knadh/koanf/providers/env/v2"

	"github.com/ferrympi/ferry/framework"
)

// environment returns the parameters of the FERRY_ variables. An empty variable counts as unset. A variable with a name close to a parameter's is an
// error, because it is probably misspelt. All others are foreign, including those that Kubernetes and Docker derive from names of services.
func environment(reg *framework.Registry, environ []string) (l layer, foreign []string, err error) {
	var misspelt error
	var known []string
	flags := strings.Split(lookup(environ, FlagsVariable), ",")
	services := linkedServices(environ)
	l, err = newLayer(sourceEnvironment, env.Provider("", env.Opt{
		Prefix:      prefix,
		EnvironFunc: func() []string { return lastOfEach(environ) },
		TransformFunc: func(variable, value string) (string, any) {
			name, isParam := reg.EnvParam(variable)
			isFlag := isParam && slices.Contains(flags, name)
			switch {
			case value == "" && !isFlag:
				return "", nil // koanf drops entries without a name.
			case isServiceLink(variable, services) && (!isParam || isServiceAddress(value)):
				foreign = append(foreign, variable)
				return "", nil
			case isParam || variable == FileVariable || variable == FlagsVariable:
				return name, value
			}
			if known == nil {
				known = append(reg.EnvNames(), FileVariable, FlagsVariable)
			}
			renamed := reg.EnvParamRenamed(variable)
			switch near := framework.Nearest(variable, known); {
			case renamed != "":
				misspelt = cmp.Or(misspelt, fmt.Errorf("%w: environment variable %s sets no parameter; it is now %s",
					framework.ErrConfig, variable, renamed))
			case !framework.Near(strings.TrimPrefix(variable, prefix), strings.TrimPrefix(near, prefix)):
				foreign = append(foreign, variable)
			case misspelt == nil:
				misspelt = fmt.Errorf("%w: environment variable %s sets no parameter; the nearest known name is %s",
					framework.ErrConfig, variable, near)
			}
			return "", nil
		},
	}), nil)
	l.flagNames = flags
	return l, foreign, errors.Join(err, misspelt)
}

// lookup returns the last value of a variable.
func lookup(environ []string, name string) string {
	for _, entry := range slices.Backward(environ) {
		if n, value, ok := strings.Cut(entry, "="); ok && n == name {
			return value
		}
	}
	return ""
}

// lastOfEach returns the FERRY_ entries of environ, only the last one of each name.
func lastOfEach(environ []string) (entries []string) {
	seen := map[string]bool{}
	for _, entry := range slices.Backward(environ) {
		name, _, ok := strings.Cut(entry, "=")
		if ok && strings.HasPrefix(name, prefix) && !seen[name] {
			seen[name] = true
			entries = append(entries, entry)
		}
	}
	slices.Reverse(entries)
	return entries
}

// serviceProtocols are the protocols of Kubernetes Services and of Docker's ports.
var serviceProtocols = []string{"tcp", "udp", "sctp"}

// isServiceAddress reports whether a value has the form tcp://HOST:PORT.
func isServiceAddress(value string) bool {
	protocol, _, ok := strings.Cut(value, "://")
	return ok && slices.Contains(serviceProtocols, protocol)
}

// linkedServices returns the prefixes SERVICE_ of services for which environ has
// SERVICE_PORT=tcp://HOST:PORT.
func linkedServices(environ []string) (services []string) {
	for _, entry := range environ {
		variable, value, _ := strings.Cut(entry, "=")
		service, ok := strings.CutSuffix(variable, "PORT")
		if ok && strings.HasPrefix(variable, prefix) && isServiceAddress(value) {
			services = append(services, service)
		}
	}
	return services
}

// isServiceLink reports whether a variable has the form of those that Kubernetes and Docker
// set for a service:
//
//	SERVICE_SERVICE_HOST  SERVICE_SERVICE_PORT  SERVICE_SERVICE_PORT_NAME
//	SERVICE_PORT  SERVICE_PORT_80_TCP  SERVICE_PORT_80_TCP_ADDR (_PORT, _PROTO)
//	SERVICE_NAME  SERVICE_ENV_NAME (Docker, only with SERVICE_PORT)
func isServiceLink(variable string, services []string) bool {
	for _, s := range services {
		if rest, ok := strings.CutPrefix(variable, s); ok && (rest == "NAME" || strings.HasPrefix(rest, "ENV_")) {
			return true
		}
	}
	return strings.HasSuffix(variable, "_SERVICE_HOST") || strings.HasSuffix(variable, "_PORT") ||
		strings.Contains(variable, "_SERVICE_PORT_") || hasPortAndProtocol(variable)
}

// hasPortAndProtocol reports whether a variable ends with _PORT_80_TCP, or with that and
// _ADDR or _PROTO.
func hasPortAndProtocol(variable string) bool {
	i := strings.LastIndex(variable, "_PORT_")
	if i < 0 {
		return false
	}
	parts := strings.Split(variable[i+len("_PORT_"):], "_")
	isNumber := parts[0] != "" && strings.Trim(parts[0], "0123456789") == ""
	return isNumber && len(parts) > 1 && slices.Contains(serviceProtocols, strings.ToLower(parts[1])) &&
		(len(parts) == 2 || len(parts) == 3 && (parts[2] == "ADDR" || parts[2] == "PROTO"))
}
