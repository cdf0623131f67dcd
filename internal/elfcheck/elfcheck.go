// Package elfcheck reads a shared library and the libraries that it needs before the dynamic linker
// maps them.
//
// dlopen holds a process-wide lock while it opens files, and a new thread needs that lock. A file
// system that does not respond would block the whole process. A mapped file that is truncated or
// unreadable kills the process by SIGBUS. This package blocks a single goroutine in the first case
// and returns an error in the second.
//
// The package follows the search of glibc's linker (search.go) and never loads a library. It
// returns no error for a library that it does not find or that is not for this machine, because the
// linker has the better message.
package elfcheck

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// Check reads the library with a name or path, the libraries that it needs, and its modules, which
// are patterns such as "ucx/*.so". A relative pattern starts at the folder of the library. Check
// blocks as long as the file system does. The error contains the path of the file.
func Check(name string, modules ...string) error {
	c := checker{newPaths(), map[string]bool{}}
	path, err := c.checkLibrary(name, nil)
	if err != nil || path == "" {
		return err
	}
	for _, pattern := range modules {
		if !filepath.IsAbs(pattern) {
			pattern = filepath.Join(filepath.Dir(resolveLinks(path)), pattern)
		}
		found, _ := filepath.Glob(pattern) // An invalid pattern matches nothing.
		for _, module := range found {
			if _, err := c.checkLibrary(resolveLinks(module), nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// resolveLinks returns the file that symbolic links lead to. An open file without a name remains a
// link.
func resolveLinks(path string) string {
	if file, err := filepath.EvalSymlinks(path); err == nil {
		return file
	}
	return path
}

// checker is the state of one Check.
type checker struct {
	paths   paths
	checked map[string]bool // Names and paths.
}

// checkLibrary checks the first file of a name that is for this machine, and the libraries that it
// needs. It returns the path, or "" without such a file. from is the library that needs it, or nil.
func (c *checker) checkLibrary(name string, from *dependencies) (string, error) {
	if c.checked[name] {
		return "", nil
	}
	c.checked[name] = true
	for _, path := range c.paths.candidates(name, from) {
		needs, ok, err := readLibrary(path)
		if err != nil {
			return path, err
		}
		if !ok {
			continue
		}
		for _, n := range needs.names {
			if _, err := c.checkLibrary(n, needs); err != nil {
				return path, err
			}
		}
		return path, nil
	}
	return "", nil
}

// dependencies has the libraries that a file needs, and the folders of its RPATH and RUNPATH.
type dependencies struct {
	names          []string
	rpath, runpath []string
}

// machines maps the supported architectures to ELF machines.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// endBytes is the size of the first and the last part of a segment that are read. GPU libraries
// have hundreds of megabytes, which the linker reads on demand.
const endBytes = 4 << 10

// readEnds reads the beginning and the end of a segment.
func readEnds(p *elf.Prog) error {
	part := make([]byte, min(p.Filesz, endBytes))
	for _, at := range []uint64{0, p.Filesz - uint64(len(part))} {
		switch n, err := p.ReadAt(part, int64(at)); {
		case n == len(part):
		case err == io.EOF:
			return fmt.Errorf("a segment ends at %d", p.Off+p.Filesz)
		default:
			return err
		}
	}
	return nil
}

// readLibrary reads the headers of a file and the ends of its segments. ok is false if the file
// does not exist or is no library for this machine.
func readLibrary(path string) (needs *dependencies, ok bool, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, false, nil
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, false, err
	}
	switch mode := info.Mode(); {
	case mode.IsDir():
		return nil, false, nil
	case !mode.IsRegular():
		return nil, false, fmt.Errorf("%s is not a regular file: %v", path, mode)
	}
	magic := make([]byte, len(elf.ELFMAG))
	if _, err := f.ReadAt(magic, 0); err != nil || string(magic) != elf.ELFMAG {
		return nil, false, nil
	}
	e, err := elf.NewFile(f)
	if err != nil {
		return nil, false, damaged(path, info.Size(), err)
	}
	if e.Class != elf.ELFCLASS64 || e.Machine != machines[runtime.GOARCH] {
		return nil, false, nil
	}
	for _, p := range e.Progs {
		if p.Type != elf.PT_LOAD {
			continue
		}
		if err := readEnds(p); err != nil {
			return nil, false, damaged(path, info.Size(), err)
		}
	}
	return &dependencies{
		names: dynamicStrings(e, elf.DT_NEEDED), rpath: folders(e, elf.DT_RPATH, path), runpath: folders(e, elf.DT_RUNPATH, path),
	}, true, nil
}

func damaged(path string, size int64, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("truncated headers")
	}
	return fmt.Errorf("%s is damaged: %w, and the file has %d bytes; install it again", path, err, size)
}

// dynamicStrings returns the strings of a dynamic tag, or none without a dynamic section.
func dynamicStrings(e *elf.File, tag elf.DynTag) []string {
	all, _ := e.DynString(tag)
	return all
}

// folders returns the folders of a dynamic tag, with $ORIGIN replaced.
func folders(e *elf.File, tag elf.DynTag, path string) (all []string) {
	origin := strings.NewReplacer("$ORIGIN", filepath.Dir(path), "${ORIGIN}", filepath.Dir(path))
	for _, list := range dynamicStrings(e, tag) {
		all = append(all, filepath.SplitList(origin.Replace(list))...)
	}
	return all
}
