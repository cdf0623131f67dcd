package cli_test

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ferrympi/ferry/framework"
)

// The default log has the first refused connection (docs/troubleshooting.md, docs/security.md).
func TestLog_UnknownProcessConnects_IsLogged(t *testing.T) {
	ferry, err := exec.LookPath("ferry")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	cmd := exec.Command(ferry, "run", "-n", "1", "--timeout", "1m", "--set", "btl=self,tcp", "--set", "btl.tcp.address_include=127.0.0.0/8",
		"--set", fmt.Sprintf("btl.tcp.port_range=%d-%d", port, port), "crash")
	cmd.Env = append(os.Environ(), "STAY=yes", "XDG_RUNTIME_DIR="+t.TempDir(), framework.EnvName("btl.shm.dir")+"="+t.TempDir())
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(said); s.Scan(); {
			lines <- s.Text()
		}
	}()
	defer func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		for range lines {
		}
		_ = cmd.Wait() // it was ended
	}()
	deadline := time.Now().Add(30 * time.Second)
	for {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			_, _ = c.Write([]byte("GET / HTTP/1.1\r\nHost: example.org\r\n\r\n" + strings.Repeat("x", 200))) // it may be cut off
			c.Close()
		}
		select {
		case line, open := <-lines:
			if !open {
				t.Fatal("the job has ended")
			}
			if strings.Contains(line, `level=WARN msg="btl tcp: a connection was refused; further ones are only counted" component=btl.tcp from=127.0.0.1`) {
				return
			}
			t.Logf("it says %s", line)
		case <-time.After(100 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatal("nothing is said of it")
		}
	}
}
