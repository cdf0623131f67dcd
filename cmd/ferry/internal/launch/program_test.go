package launch

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ferrympi/ferry/framework"
)

// executable writes a program below dir.
func executable(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestProgram_MissingInterpreter_IsNamed(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	nested := executable(t, dir, "nested", "#!/nonexistent/sh -e\n")
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"dos":         {"#!/bin/sh\r\necho hi\r\n", []string{`interpreter "/bin/sh\r": no such file`, "carriage return"}},
		"missing":     {"#! /nonexistent/sh -e\n", []string{`interpreter "/nonexistent/sh": no such file`}},
		"relative":    {"#!there/sh\n", []string{`interpreter "` + dir + `/there/sh": no such file`}},
		"no line end": {"#!/nonexistent/sh\targument", []string{`interpreter "/nonexistent/sh": no such file`}},
		"not allowed": {"#!" + plain + "\n", []string{`interpreter "` + plain + `": permission denied`}},
		"nested":      {"#!" + nested + "\n", []string{nested + `: its interpreter "/nonexistent/sh": no such file`}},
		"loader":      {loaderless(t), []string{`interpreter "/nonexistent/ld.so`, "C library"}},
		"text":        {"echo hi\n", []string{"exec format error", "a script with a #! line"}},
		"empty line":  {"#!\n", []string{"exec format error"}},
	} {
		t.Run(name, func(t *testing.T) {
			j := Job{Part: Part{Program: executable(t, dir, "program", c.text), RankCount: 1, WorkingDir: dir}}
			_, err := j.Run(t.Context())
			if !errors.Is(err, ErrNotExecutable) {
				t.Fatalf("error %v", err)
			}
			for _, part := range c.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not have %q", err, part)
				}
			}
		})
	}
}

// loaderless returns a binary for this machine without its loader.
func loaderless(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/bin/true")
	if err != nil {
		t.Skip(err)
	}
	loader := []byte(loaderOf(bytes.NewReader(text)))
	if len(loader) < len("/nonexistent/ld.so") {
		t.Skipf("/bin/true has loader %q", loader)
	}
	other := append([]byte("/nonexistent/ld.so"), bytes.Repeat([]byte{'x'}, len(loader)-len("/nonexistent/ld.so"))...)
	return string(bytes.Replace(text, loader, other, 1))
}

func TestWorkingDirectory_Unusable_IsErrorWithReason(t *testing.T) {
	dir := t.TempDir()
	file := executable(t, dir, "file", "")
	for path, want := range map[string]string{
		filepath.Join(dir, "missing"):          "does not exist",
		file:                                   "is not a directory",
		file + "/below":                        "is not a directory",
		dir + "/" + strings.Repeat("long", 99): "can't be entered: file name too long",
	} {
		_, err := Job{Part: Part{Program: "/bin/true", RankCount: 1, WorkingDir: path}}.Run(t.Context())
		if !errors.Is(err, framework.ErrConfig) || !strings.HasSuffix(err.Error(), "working directory "+path+" "+want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

func TestWorkingDirectory_OfRanks_IsTheirPWD(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"real/deep", "real/deeper", "deeper"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("real/deep", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	for path, want := range map[string]string{
		"real":           dir + "/real",
		"link":           dir + "/link",
		dir + "/link/.":  dir + "/link",
		"link/../deeper": dir + "/real/deeper",
		"":               dir,
	} {
		j := shell(t, 1, "echo $PWD")
		j.Program, j.Args = "/usr/bin/env", nil
		j.WorkingDir = path
		run(t, j)
		if !strings.Contains(stdoutOf(j), "PWD="+want+"\n") {
			t.Errorf("in %q: PWD is not %s in %s", path, want, stdoutOf(j))
		}
	}
}

func TestNotExecutable_OtherError_IsKept(t *testing.T) {
	other := &fs.PathError{Op: "open", Path: os.DevNull, Err: syscall.ENOENT}
	if err := notExecutable("/bin/true", "", other); err != error(other) {
		t.Errorf("a file of the launcher's became %v", err)
	}
}
