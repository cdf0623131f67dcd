package elfcheck

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
)

// cacheFile is the list of libraries that ldconfig writes.
const cacheFile = "/etc/ld.so.cache"

// defaultDirs are searched last.
var defaultDirs = []string{"/lib64", "/usr/lib64", "/lib", "/usr/lib"}

// paths finds the files of library names as glibc's linker does (ld.so(8)), except in subfolders
// for capabilities of the processor.
type paths struct {
	environment []string
	cached      map[string][]string
}

func newPaths() paths {
	text, _ := os.ReadFile(cacheFile) // A missing cache leaves the default folders.
	return paths{filepath.SplitList(os.Getenv("LD_LIBRARY_PATH")), parseCache(text)}
}

// candidates returns the possible files of a library in the linker's order. They need not exist.
func (p paths) candidates(name string, from *dependencies) (all []string) {
	if strings.Contains(name, "/") {
		return []string{name}
	}
	add := func(dirs []string) {
		for _, dir := range dirs {
			all = append(all, filepath.Join(dir, name))
		}
	}
	if from != nil && len(from.runpath) == 0 {
		add(from.rpath)
	}
	add(p.environment)
	if from != nil {
		add(from.runpath)
	}
	all = append(all, p.cached[name]...)
	add(defaultDirs)
	return all
}

// Layout of the cache: a header, entries, and strings at offsets from the header (glibc, sysdeps/generic/dl-cache.h).
const (
	cacheMagic  = "glibc-ld.so.cache1.1"
	cacheHeader = 48
	cacheEntry  = 24
)

// parseCache returns the files of each name. It ignores invalid entries.
func parseCache(text []byte) map[string][]string {
	all := map[string][]string{}
	start := bytes.Index(text, []byte(cacheMagic)) // Older systems have another list before it.
	if start < 0 || len(text)-start < cacheHeader {
		return all
	}
	text = text[start:]
	count := int(binary.NativeEndian.Uint32(text[len(cacheMagic):]))
	for i := range min(count, (len(text)-cacheHeader)/cacheEntry) {
		entry := text[cacheHeader+i*cacheEntry:]
		name, ok := textAt(text, binary.NativeEndian.Uint32(entry[4:]))
		path, isPath := textAt(text, binary.NativeEndian.Uint32(entry[8:]))
		if ok && isPath {
			all[name] = append(all[name], path)
		}
	}
	return all
}

// textAt returns the zero-terminated string at an offset.
func textAt(text []byte, at uint32) (string, bool) {
	if uint64(at) >= uint64(len(text)) {
		return "", false
	}
	n := bytes.IndexByte(text[at:], 0)
	if n < 0 {
		return "", false
	}
	return string(text[at:][:n]), true
}
