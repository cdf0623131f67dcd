package host_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/config"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/plugin/host"
)

func TestOpen_FileWritableByOthers_IsRefused(t *testing.T) {
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(self)
	right := hex.EncodeToString(sum[:])
	dir := t.TempDir()
	file := func(name string, mode os.FileMode) string {
		path := dir + "/" + name
		if err := os.WriteFile(path, self, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	if err := os.Mkdir(dir+"/open", 0o777); err != nil {
		t.Fatal(err)
	}
	good := file("good", 0o755)
	inOpen := file("open/good", 0o755)
	if err := os.Chmod(dir+"/open", 0o777); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ path, sum, says string }{
		{good, right, ""},
		{good, strings.ToUpper(right), ""},
		{good, strings.Repeat("0", 64), "has the SHA-256 " + right},
		{file("writable", 0o775), "", "can be written by others"},
		{inOpen, "", "can be written by others"},
		{file("plain", 0o644), "", "is not executable"},
		{dir, "", "is not a file that can be executed"},
		{dir + "/none", "", "there is no "},
	} {
		for _, protocol := range []string{config.ProtocolGoPlugin, config.ProtocolFerry} {
			e := host.Entry{Kind: framework.BTL, Name: "acme", Command: []string{c.path, "loopback"}, SHA256: c.sum, Protocol: protocol}
			v := component(t, e).Probe(context.Background(), nil)
			if (v.Status == framework.StatusUsable) != (c.says == "") || !strings.Contains(v.Why(), c.says) {
				t.Errorf("%s, %s: %v %s", c.path, protocol, v.Status, v.Why())
			}
			if _, _, _, err := open(t, e, io.Discard, nil); (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s, %s: opened: %v", c.path, protocol, err)
			}
		}
	}
}

func TestProbe_EntryWithoutCommand_IsUnavailable(t *testing.T) {
	c := host.Component(host.Entry{Kind: framework.BTL, Name: "nothing"})
	if info := c.Info(); info.Name != "nothing" {
		t.Errorf("it is called %q", info.Name)
	}
	if v := c.Probe(t.Context(), c.Params()); v.Status == framework.StatusUsable || v.Reason == "" {
		t.Errorf("verdict %+v", v)
	}
}
