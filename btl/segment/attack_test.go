package segment

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/internal/needs"
)

const leaseVariable = "SEGMENT_TEST_LEASE"

// holdLease is the attacker. As another user, it creates the file, holds a lease on it, and prints
// the lease at the end of its input. A pending break changes the lease.
func holdLease(path string) error {
	signal.Ignore(unix.SIGIO)
	if err := unix.Setgid(65534); err != nil {
		return err
	}
	if err := unix.Setuid(65534); err != nil {
		return err
	}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o666)
	if err != nil {
		return err
	}
	if err := unix.Fchmod(fd, 0o666); err != nil {
		return err
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		return fmt.Errorf("lease: %w", err)
	}
	fmt.Println("held")
	bufio.NewReader(os.Stdin).ReadByte()
	lease, err := unix.FcntlInt(uintptr(fd), unix.F_GETLEASE, 0)
	fmt.Println(lease)
	return err
}

// An open of the file would block for lease-break-time, 45 s.
func TestAttack_LeaseOnFileOfAnotherUser_IsNotBroken(t *testing.T) {
	needs.Root(t, "start a process of another user")
	prefix := "ferry-test-lease-" + filepath.Base(t.TempDir())
	path := filepath.Join(dir, prefix)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), leaseVariable+"="+path)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(path)
	defer cmd.Wait()
	defer in.Close()
	var state string
	if _, err := fmt.Fscan(out, &state); err != nil || state != "held" {
		t.Fatalf("attacker: %q, %v", state, err)
	}
	if removed, err := new(Files).RemoveStale(dir, prefix); err != nil || len(removed) != 0 {
		t.Errorf("removed %v, %v", removed, err)
	}
	if seg, err := new(Files).Open(path); err == nil {
		seg.Close()
		t.Error("opened the file of another user")
	}
	in.Close()
	var lease int
	if _, err := fmt.Fscan(out, &lease); err != nil || lease != unix.F_WRLCK {
		t.Errorf("lease %d, %v; want %d: something opened the file", lease, err, unix.F_WRLCK)
	}
}

func TestAttack_EntryThatIsNoRegularFile_IsNotOpened(t *testing.T) {
	folder := t.TempDir()
	for name, create := range map[string]func(path string) error{
		"fifo": func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"link": func(path string) error {
			target := filepath.Join(folder, "target")
			if err := os.WriteFile(target, nil, 0o600); err != nil {
				return err
			}
			return os.Symlink(target, path)
		},
		"directory": func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		path := filepath.Join(folder, "ferry-"+name)
		if err := create(path); err != nil {
			t.Fatal(err)
		}
		if seg, err := new(Files).Open(path); err == nil {
			seg.Close()
			t.Errorf("opened the %s", name)
		}
		if removed, err := new(Files).RemoveStale(folder, "ferry-"+name); err != nil || len(removed) != 0 {
			t.Errorf("%s: removed %v, %v", name, removed, err)
		}
	}
}
