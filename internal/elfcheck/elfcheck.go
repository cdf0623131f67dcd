// Package elfcheck reads a shared library, and the libraries that it needs, before the dynamic linker maps them.
//
// dlopen holds a lock of the process while it opens files, and a new thread needs that lock: a file system that does not answer
// would stop the whole process. A mapped file that ends early, or that cannot be read, ends the process by SIGBUS. Here the one
// blocks a single goroutine, and the other is an error.
//
// The package follows the search of glibc's linker (search.go) and never loads anything. A library that it does not find, or that
// is none for this machine, is no error: the linker has the better message.
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

// Check reads the library of a name or path, the libraries that it needs, and its modules, which are patterns such as "ucx/*.so".
// A relative pattern begins at the folder of the library. Check blocks as long as a file system does. The error names the file.
func Check(name string, modules ...string) error {
	c := checker{newPaths(), map[string]bool{}}
	path, err := c.library(name, nil)
	if err != nil || path == "" {
		return err
	}
	for _, pattern := range modules {
		if !filepath.IsAbs(pattern) {
			pattern = filepath.Join(filepath.Dir(target(path)), pattern)
		}
		found, _ := filepath.Glob(pattern) // A pattern that makes no sense finds nothing.
		for _, module := range found {
			if _, err := c.library(target(module), nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// target is the file to which symbolic links lead. An open file without a name stays a link.
func target(path string) string {
	if file, err := filepath.EvalSymlinks(path); err == nil {
		return file
	}
	return path
}

// checker holds the state of one Check.
type checker struct {
	paths paths
	seen  map[string]bool // Names and paths that were checked.
}

// library checks the first file of a name that is for this machine, and the libraries that it needs. It returns the path, empty
// without such a file. from is the library that needs it, or nil.
func (c *checker) library(name string, from *needing) (string, error) {
	if c.seen[name] {
		return "", nil
	}
	c.seen[name] = true
	for _, path := range c.paths.of(name, from) {
		needs, ok, err := read(path)
		if err != nil {
			return path, err
		}
		if !ok {
			continue
		}
		for _, n := range needs.names {
			if _, err := c.library(n, needs); err != nil {
				return path, err
			}
		}
		return path, nil
	}
	return "", nil
}

// needing has the libraries that a file needs, and the folders of its RPATH and RUNPATH.
type needing struct {
	names          []string
	rpath, runpath []string
}

// machines has the ELF machine of each architecture that ferry supports.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// endBytes is the length of the parts that are read of a segment, its first and its last. Libraries of GPUs have hundreds of
// megabytes, which the linker reads only where they are used.
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

// read reads the headers of a file and the ends of its segments. ok is false if the file does not exist or is no library for this machine.
func read(path string) (needs *needing, ok bool, err error) {
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
	return &needing{
		names: texts(e, elf.DT_NEEDED), rpath: folders(e, elf.DT_RPATH, path), runpath: folders(e, elf.DT_RUNPATH, path),
	}, true, nil
}

func damaged(path string, size int64, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("its headers are cut short")
	}
	return fmt.Errorf("%s is damaged: %w, and the file has %d bytes; install it again", path, err, size)
}

// texts returns the strings of a dynamic tag. Without a dynamic section there are none.
func texts(e *elf.File, tag elf.DynTag) []string {
	all, _ := e.DynString(tag)
	return all
}

// folders returns the folders of a dynamic tag, with $ORIGIN replaced.
func folders(e *elf.File, tag elf.DynTag, path string) (all []string) {
	origin := strings.NewReplacer("$ORIGIN", filepath.Dir(path), "${ORIGIN}", filepath.Dir(path))
	for _, list := range texts(e, tag) {
		all = append(all, filepath.SplitList(origin.Replace(list))...)
	}
	return all
}
