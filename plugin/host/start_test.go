package host_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	goplugin "github.com/hashicorp/go-plugin"

	"github.com/ferrympi/ferry/config"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/plugin/host"
	"github.com/ferrympi/ferry/plugin/internal/control"
)

// byHandVariable makes this test binary a plugin that no rank has started.
const byHandVariable = "FERRY_TEST_BY_HAND"

func TestStart_BadPlugin_ReturnsReasonInTime(t *testing.T) {
	for _, c := range []struct{ protocol, behavior, env, reason string }{
		{"", "hangs", "", "has not answered within 300ms (start_timeout); a Go plugin calls plugin.Serve, and one that speaks docs/plugin-protocol.md has protocol: ferry"},
		{"ferry", "hangs", "", "has not answered within 300ms (start_timeout)"},
		{"", "exits", "", "exited before it replied: exit status 3"},
		{"ferry", "exits", "", "exited before it replied: exit status 3"},
		{"", "prints first", "", "has printed \"hello from a library\" in place of its handshake"},
		{"", "opens nothing", "", "Open returned neither a module nor an error"},
		{"ferry", "opens nothing", "", "Open returned neither a module nor an error"},
		{"", "newer", "", "incompatible API version with plugin. Plugin version: 9, Client versions: [1]"},
		{"", "old", "", "(start_timeout); a Go plugin calls"}, // it speaks the other protocol
		{"", "accepts nothing", "", "has not answered within 300ms (start_timeout)"},
		{"ferry", "babbles", "", "control frame"},
		{"ferry", "old", "", "the rank speaks version 1 of the plugin protocol, and the plugin version 0: the plugin, which is older"},
		{"ferry", "loopback", "FERRY_PLUGIN=9", "the rank speaks version 9 of the plugin protocol, and the plugin version 1: the plugin, which is older"},
	} {
		e := entry(c.behavior)
		e.Protocol = c.protocol
		if c.env != "" {
			e.Env = append(e.Env, c.env)
		}
		limit := "300ms"
		if !slices.Contains([]string{"hangs", "old", "accepts nothing"}, c.behavior) {
			limit = "20s"
		}
		_, _, _, err := open(t, e, io.Discard, set(t, map[string]string{"btl.acme.start_timeout": limit}))
		if err == nil || !strings.Contains(err.Error(), c.reason) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s %s: %v", c.protocol, c.behavior, err)
		}
	}
	if pids := children(t); len(pids) > 0 {
		t.Errorf("processes %v are left", pids)
	}
}

// With the small protocol, standard output is the log from the first line on.
func TestStart_PrintsFirstOverFerry_IsLogged(t *testing.T) {
	e := entry("prints first")
	e.Protocol = config.ProtocolFerry
	var log text
	if _, _, _, err := open(t, e, &log, nil); err != nil {
		t.Fatal(err)
	}
	waitForLog(t, &log, "hello from a library")
}

// The job has no directory, so that the socket's folder lies in another one.
func TestStart_UnusableTMPDIR_FallsBack(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("x", 72))
	if err := os.Mkdir(long, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{long, "/nonexistent"} {
		t.Setenv("TMPDIR", dir)
		if _, _, _, err := open(t, entry("loopback"), io.Discard, nil); err != nil {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

func TestServe_NoSocketDirectory_PrintsReasonOfGoPlugin(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), entry("").Command[0], "loopback")
	cmd.Env = append(os.Environ(), control.Handshake.MagicCookieKey+"="+control.Handshake.MagicCookieValue, goplugin.EnvUnixSocketDir+"=/nonexistent")
	out, err := cmd.CombinedOutput()
	if !strings.Contains(string(out), "no such file or directory") {
		t.Errorf("%v: %q", err, out)
	}
}

func TestServe_StartedByHand_PrintsHintOfGoPlugin(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "loopback")
	cmd.Env = append(os.Environ(), byHandVariable+"=1")
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), "This binary is a plugin. These are not meant to be executed directly.") {
		t.Errorf("%v: %s", err, out)
	}
}

// script writes a script that executes this test binary as a plugin.
func script(t *testing.T, text string) host.Entry {
	t.Helper()
	e := entry("loopback")
	path := filepath.Join(t.TempDir(), "btl-acme")
	if err := os.WriteFile(path, fmt.Appendf(nil, text, e.Command[0]), 0o755); err != nil {
		t.Fatal(err)
	}
	e.Command[0] = path
	return e
}

func TestStart_Script_Runs(t *testing.T) {
	for name, text := range map[string]string{
		"exec":    "#!/bin/sh\nexec %s \"$@\"\n",
		"child":   "#!/bin/sh\n%s \"$@\"\n", // the plugin is a child of the shell
		"by env":  "#!/usr/bin/env bash\nexec %s \"$@\"\n",
		"options": "#! /bin/sh -e\nexec %s \"$@\"\n",
	} {
		overBoth(t, func(t *testing.T, entry func(string) host.Entry) {
			e := script(t, text)
			e.Protocol = entry("").Protocol
			body, err := os.ReadFile(e.Command[0])
			if err != nil {
				t.Fatal(err)
			}
			sum := sha256.Sum256(body)
			e.SHA256 = hex.EncodeToString(sum[:])
			if v := component(t, e).Probe(t.Context(), nil); v.Status != framework.StatusUsable {
				t.Errorf("%s: %s", name, v.Why())
			}
			if _, _, _, err := open(t, e, io.Discard, nil); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			e.SHA256 = strings.Repeat("0", 64)
			if _, _, _, err := open(t, e, io.Discard, nil); err == nil || !strings.Contains(err.Error(), "has the SHA-256 ") {
				t.Errorf("%s with another sum: %v", name, err)
			}
		})
	}
}

func TestProbe_FileThatDoesNotExecute_IsUnavailable(t *testing.T) {
	arm, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	arm[18] ^= 0xff // the machine of the ELF header
	dir := t.TempDir()
	for name, c := range map[string]struct{ contents, reason string }{
		"text":        {"exec something\n", "is neither a program nor a script"},
		"empty":       {"", "is neither a program nor a script"},
		"truncated":   {"\x7fELF", "is neither a program nor a script"},
		"foreign":     {string(arm), "and this machine is "},
		"interpreter": {"#!/nonexistent/interpreter\n", "the interpreter /nonexistent/interpreter of the script"},
		"bare":        {"#!", "names no interpreter"},
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(c.contents), 0o755); err != nil {
			t.Fatal(err)
		}
		e := host.Entry{Kind: framework.BTL, Name: "acme", Command: []string{path}}
		if v := component(t, e).Probe(t.Context(), nil); v.Status == framework.StatusUsable || !strings.Contains(v.Why(), c.reason) {
			t.Errorf("%s: %v %s", name, v.Status, v.Why())
		}
		if _, _, _, err := open(t, e, io.Discard, nil); err == nil || !strings.Contains(err.Error(), c.reason) {
			t.Errorf("%s: opened: %v", name, err)
		}
	}
}
