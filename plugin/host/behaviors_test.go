package host_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	goplugin "github.com/hashicorp/go-plugin"
	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/btl/btltest"
	"github.com/ferrympi/ferry/btl/self"
	"github.com/ferrympi/ferry/btl/tcp"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/plugin"
	"github.com/ferrympi/ferry/plugin/internal/control"
)

// be is a plugin, which keeps its promises or not.
func be(what string) int {
	switch what {
	case "loopback":
		return serve(self.Component())
	case "tcp":
		return serve(tcp.Component())
	case "null":
		return serve(btltest.Null())
	case "prints first":
		fmt.Println("hello from a library")
		return be("loopback")
	case "newer":
		return serveVersion(9)
	case "accepts nothing": // the handshake is valid
		path := filepath.Join(os.Getenv(goplugin.EnvUnixSocketDir), "s")
		l, err := net.Listen("unix", path)
		if err != nil {
			return 1
		}
		defer l.Close()
		fmt.Printf("1|1|unix|%s|grpc|\n", path)
		time.Sleep(time.Hour)
	case "hangs":
		time.Sleep(time.Hour)
	case "exits":
		return 3
	case "babbles":
		_, _ = unix.Write(3, []byte("not a control frame"))
		time.Sleep(time.Hour)
	case "old": // an offer of version 0
		_, _ = unix.Write(3, []byte{2, 0, 0, 0, 0, 0, 0, 0})
		time.Sleep(time.Hour)
	case "forks": // A separate process holds its output open.
		child := exec.Command("sleep", "20")
		child.Stdout, child.Stderr = os.Stdout, os.Stderr
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if child.Start() != nil {
			return 1
		}
		return be("loopback")
	case "hangs in connect", "never opens", "hangs in open", "hangs in close", "hangs in poll", "closes its descriptors", "noisy", "opens nothing":
		return serve(broken{self.Component(), what})
	case "garbage":
		go garbage()
		return be("loopback")
	}
	return 0
}

func serve(c btl.Component) int {
	if err := plugin.Serve(c); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// serveVersion serves another version of the service through go-plugin.
func serveVersion(version int) int {
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig:  control.Handshake,
		VersionedPlugins: map[int]goplugin.PluginSet{version: control.Versions(control.UnimplementedTransportServer{})[1]},
		GRPCServer:       goplugin.DefaultGRPCServer,
	})
	return 0
}

// garbage fills the ring to the rank with invalid messages.
func garbage() {
	var st unix.Stat_t
	if unix.Fstat(4, &st) != nil {
		return
	}
	mem, err := unix.Mmap(4, 0, int(st.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return
	}
	cells := mem[4096+(len(mem)-4096)/2:]
	time.Sleep(20 * time.Millisecond) // messages go meanwhile
	now := binary.LittleEndian.Uint32(cells)
	for lap := now; ; lap = now + (lap-now+1)%8 {
		for at := 0; at < len(cells); at += 64 {
			binary.LittleEndian.PutUint32(cells[at:], lap)
			binary.LittleEndian.PutUint32(cells[at+4:], 1<<30)
		}
	}
}

// broken is a transport that hangs or does not reply.
type broken struct {
	btl.Component
	what string
}

func (b broken) Open(ctx context.Context, env btl.Env) (btl.Module, error) {
	switch b.what {
	case "opens nothing":
		return nil, nil
	case "hangs in open":
		fmt.Fprintln(os.Stderr, "pid", os.Getpid())
		time.Sleep(time.Hour)
	}
	m, err := b.Component.Open(ctx, env)
	if b.what == "noisy" {
		go func() {
			for {
				fmt.Println(strings.Repeat("x", 3000))
			}
		}()
	}
	return &brokenModule{Module: m, what: b.what}, err
}

type brokenModule struct {
	btl.Module
	what      string
	connected bool
}

func (m *brokenModule) Poll() int {
	if m.connected && m.what == "hangs in poll" {
		time.Sleep(time.Hour)
	}
	return m.Module.Poll()
}

func (m *brokenModule) Connect(peer framework.Peer) (btl.Endpoint, error) {
	m.connected = true
	switch m.what {
	case "closes its descriptors":
		for fd := 3; fd < 64; fd++ {
			_ = unix.Close(fd)
		}
	case "hangs in connect":
		time.Sleep(time.Hour)
	case "never opens":
		return deaf{}, nil
	}
	return m.Module.Connect(peer)
}

func (m *brokenModule) Close() error {
	if m.what == "hangs in close" {
		time.Sleep(time.Hour)
	}
	return m.Module.Close()
}

// deaf is a path that never opens.
type deaf struct{}

func (deaf) Reserve(int, btl.Placement) []byte { return nil }
func (deaf) Commit(int)                        {}
func (deaf) Idle() bool                        { return true }
func (deaf) Close()                            {}
