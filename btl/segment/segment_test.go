package segment

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// dir is a memory file system, which every Linux machine has.
const dir = "/dev/shm"

// TestMain also runs the child that creates a segment and is killed.
func TestMain(m *testing.M) {
	if path := os.Getenv("SHMEM_TEST_OWNER"); path != "" {
		if _, err := new(Files).Create(path, PageSize); err != nil {
			os.Stderr.WriteString(err.Error())
			os.Exit(1)
		}
		os.Stdout.WriteString("ready\n")
		select {}
	}
	if path := os.Getenv("SEGMENT_TEST_NO_PROC"); path != "" {
		os.Exit(createWithoutProc(path))
	}
	if path := os.Getenv(leaseVariable); path != "" {
		if err := holdLease(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestMap_TwoMappings_ShareMemory(t *testing.T) {
	path := filepath.Join(dir, "ferry-test-"+filepath.Base(t.TempDir())+t.Name())
	f, err := new(Files).Create(path, 2*PageSize)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	g, err := new(Files).Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	a, err := f.Map(PageSize, 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := g.Map(PageSize, 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	a.Bytes[17] = 42
	if b.Bytes[17] != 42 {
		t.Fatal("the other mapping does not show a store")
	}
	if _, err := g.Map(PageSize, 2*PageSize); err == nil {
		t.Fatal("mapped memory past the end")
	}
	if err := f.Grow(3 * PageSize); err != nil {
		t.Fatal(err)
	}
	c, err := g.Map(PageSize, 2*PageSize)
	if err != nil {
		t.Fatal("after the owner has grown the segment: ", err)
	}
	defer c.Close()
}

// The file system of a container may have no unnamed files.
func TestCreate_NoUnnamedFiles_UsesNamedFile(t *testing.T) {
	prefix := "ferry-test-" + t.Name()
	path := filepath.Join(dir, prefix)
	f, err := createNamed(path, PageSize)
	if err != nil {
		t.Fatal(err)
	}
	if removed, err := new(Files).RemoveStale(dir, prefix); err != nil || len(removed) != 0 {
		t.Errorf("removed %v (%v) while the owner lives", removed, err)
	}
	if _, err := createNamed(path, PageSize); !errors.Is(err, os.ErrExist) {
		t.Errorf("second creation: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	var space *SpaceError
	if _, err := createNamed(path, 1<<60); !errors.As(err, &space) {
		t.Errorf("a segment of 2^60 bytes: %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Error("a segment remains")
	}
}

func TestCreate_NameExists_ReturnsErrExist(t *testing.T) {
	path := filepath.Join(dir, "ferry-test-"+t.Name())
	f, err := new(Files).Create(path, PageSize)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if g, err := new(Files).Create(path, PageSize); !errors.Is(err, os.ErrExist) {
		g.Close()
		t.Fatalf("second Create: %v", err)
	}
}

// The test kills an owner with SIGKILL while another one is alive.
func TestRemoveStale_OwnerKilled_RemovesOnlyItsSegment(t *testing.T) {
	prefix := "ferry-test-stale-"
	live, err := new(Files).Create(filepath.Join(dir, prefix+"live"), PageSize)
	if err != nil {
		t.Fatal(err)
	}
	defer live.Close()
	path := filepath.Join(dir, prefix+"dead")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "SHMEM_TEST_OWNER="+path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 6)); err != nil {
		t.Fatal("the owner did not start: ", err)
	}
	if removed, err := new(Files).RemoveStale(dir, prefix); err != nil || len(removed) != 0 {
		t.Fatalf("removed %v (%v) while the owners live", removed, err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	removed, err := new(Files).RemoveStale(dir, prefix)
	if err != nil || len(removed) != 1 || removed[0] != path {
		t.Fatalf("removed %v (%v), want %s", removed, err, path)
	}
	if _, err := os.Stat(live.Path()); err != nil {
		t.Fatal("the segment of the live owner is gone: ", err)
	}
}

func TestCreate_FileSystemTooSmall_ReturnsSpaceError(t *testing.T) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "ferry-test-"+t.Name())
	_, err := new(Files).Create(path, int64(st.Blocks)*st.Bsize+PageSize)
	var space *SpaceError
	if !errors.As(err, &space) || !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("got %v", err)
	}
	if !strings.Contains(err.Error(), path) || space.Need <= space.Free {
		t.Fatalf("the error lacks path or shortage: %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Fatal("an incomplete segment remains")
	}
}

func TestCreate_Umask_LeavesTheOwnersRights(t *testing.T) {
	unique := filepath.Base(t.TempDir())
	defer unix.Umask(unix.Umask(0o777))
	for name, create := range map[string]func(string, int64) (Segment, error){"unnamed": new(Files).Create, "named": createNamed} {
		path := filepath.Join(dir, "ferry-test-umask-"+name+unique)
		f, err := create(path, PageSize)
		if err != nil {
			t.Fatal(err)
		}
		if st, err := os.Stat(path); err != nil || st.Mode() != 0o600 {
			t.Errorf("%s: %v, %v; want mode 0600", name, st.Mode(), err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

const statusNoMount = 3

// createWithoutProc creates a segment under an empty /proc, and returns an exit status.
func createWithoutProc(path string) int {
	if err := unix.Mount("none", "/proc", "tmpfs", 0, ""); err != nil {
		os.Stderr.WriteString(err.Error())
		return statusNoMount
	}
	f, err := new(Files).Create(path, PageSize)
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		os.Stderr.WriteString(err.Error())
		return 1
	}
	return 0
}

func TestCreate_WithoutProc_Succeeds(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "SEGMENT_TEST_NO_PROC="+filepath.Join(dir, "ferry-test-noproc"+filepath.Base(t.TempDir())))
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok || ok && exit.ExitCode() == statusNoMount {
		t.Skipf("no mount namespace to hide /proc in: %v: %s", err, out)
	}
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// The test runs in a child process, because setuid affects all threads.
func TestCloseOfSegment_ProcessChangedItsUser_ErrorNamesFileAndUsers(t *testing.T) {
	const variable = "SEGMENT_OF_ANOTHER_USER"
	if path := os.Getenv(variable); path != "" {
		seg, err := new(Files).Create(path, 4096)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Setuid(65534); err != nil {
			t.Fatal(err)
		}
		fmt.Println(seg.Close())
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("only root may change its user")
	}
	path := filepath.Join(t.TempDir(), "segment")
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), variable+"="+path)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{"remove segment " + path, "user 0", "user 65534", "close the session before setuid"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%s\nlacks %q", out, want)
		}
	}
}
