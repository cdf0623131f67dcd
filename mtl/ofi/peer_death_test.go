package ofi_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"
)

// It shows the defect of ofi_rxm without ferry, and the conditions that avoid it.
func TestDefects_LongMessageOfFailedSender_CrashesReceiver(t *testing.T) {
	orphan := compile(t, "orphan.c", "-lfabric")
	for _, c := range []struct {
		provider, receives, shared string
		works                      bool
	}{
		{"tcp;ofi_rxm", "directed", "1", false}, {"tcp;ofi_rxm", "undirected", "1", true},
		{"net;ofi_rxm", "directed", "1", false}, {"net;ofi_rxm", "undirected", "0", false}, {"net;ofi_rxm", "undirected", "1", true},
		{"sockets", "directed", "1", true}, {"sockets", "undirected", "1", true},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		cmd := exec.CommandContext(ctx, orphan, c.provider, c.receives)
		cmd.Dir = t.TempDir()
		// Without the first a library that libfabric may bring along takes SIGSEGV.
		cmd.Env = append(os.Environ(), "IPATH_NO_BACKTRACE=1", "FI_OFI_RXM_USE_SRX="+c.shared, "FI_OFI_RXM_SAR_LIMIT=0")
		text, err := cmd.CombinedOutput()
		cancel()
		switch name := fmt.Sprintf("%s, %s, with shared buffers %s", c.provider, c.receives, c.shared); {
		case c.works && err != nil:
			t.Errorf("%s: %v: %s", name, err, text)
		case !c.works && err == nil:
			t.Logf("%s works: this libfabric has been repaired", name)
		default:
			t.Logf("%s: %.200s%v", name, text, err)
		}
	}
}
