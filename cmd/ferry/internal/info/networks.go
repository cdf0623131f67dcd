package info

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/ferrympi/ferry/cmd/ferry/internal/exit"
	"github.com/ferrympi/ferry/cmd/ferry/internal/settings"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl"
)

// Network is the survey of one MTL.
type Network struct {
	Component string `json:"component"` // "mtl ofi"
	// Name and version.
	Library string `json:"library,omitempty"`
	// In order of preference.
	Devices []Device `json:"devices"`
	// Reason of a failed survey.
	Reason string `json:"reason,omitempty"`
}

// Device is a provider on a device of this machine, or one without a device.
type Device struct {
	Name     string `json:"name"`     // "tcp;ofi_rxm on eth0 (10.1.0.0/24)"
	Provider string `json:"provider"` // "tcp;ofi_rxm"
	State    string `json:"state"`    // "usable", "refused" or "unavailable"
	Reason   string `json:"reason,omitempty"`
}

// surveyTimeout limits the survey of one MTL.
const surveyTimeout = 15 * time.Second

// surveyNetwork surveys an MTL in a separate process, because a provider may crash.
func surveyNetwork(ctx context.Context, name string, set []string) Network {
	n := Network{Component: "mtl " + name, Devices: []Device{}}
	self, err := os.Executable()
	if err != nil {
		n.Reason = err.Error()
		return n
	}
	ctx, cancel := context.WithTimeoutCause(ctx, surveyTimeout, fmt.Errorf("no answer within %v", surveyTimeout))
	defer cancel()
	cmd := exec.CommandContext(ctx, self, "info", "--survey", name)
	cmd.Env = append(os.Environ(), settings.Environ(set)...)
	cmd.WaitDelay = time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		n.Reason = fmt.Sprintf("asking for its devices: %v", err)
		if ctx.Err() != nil {
			n.Reason = fmt.Sprintf("asking for its devices: %v", context.Cause(ctx))
		} else if first, _, _ := strings.Cut(errs.String(), "\n"); first != "" {
			n.Reason += ": " + first
		}
		return n
	}
	var all []mtl.Candidate
	if err := json.Unmarshal(out.Bytes(), &all); err != nil {
		n.Reason = fmt.Sprintf("asking for its devices: %v", err)
		return n
	}
	for _, c := range all {
		d := Device{Name: c.Name, Provider: c.Provider, State: "usable", Reason: c.Reason}
		switch {
		case c.Unavailable:
			d.State = "unavailable"
		case c.Refused:
			d.State = "refused"
		}
		n.Library = c.Library
		n.Devices = append(n.Devices, d)
	}
	return n
}

// surveyMTL is the survey in that process.
func surveyMTL(ctx context.Context, name string) ([]mtl.Candidate, error) {
	reg := settings.Registry()
	values, err := settings.Load(reg, nil, nil)
	if err != nil {
		return nil, err
	}
	c, ok := reg.Lookup(framework.MTL, name)
	if !ok {
		return nil, exit.Usagef("--survey %s: no such mtl", name)
	}
	asks, ok := framework.As[mtl.Surveyor](c)
	if !ok {
		return nil, errors.New("it has no devices")
	}
	params := c.Params()
	if params != nil {
		if err := values.Decode("mtl."+name, params); err != nil {
			return nil, err
		}
	}
	return asks.Survey(ctx, params)
}
