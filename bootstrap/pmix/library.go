package pmix

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/pmixc"
	"github.com/ferrympi/ferry/internal/trustedfile"
)

// libraryDirs are the directories of libpmix in distributions. Debian's packages may lack the link
// from its own directory.
var libraryDirs = []string{
	"/usr/lib/*-linux-gnu/pmix2/lib", "/usr/lib/*-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib", "/opt/pmix/lib",
}

// loadTimeout limits the search for libpmix and its load.
const loadTimeout = 10 * time.Second

// loadSlot is held by the call that finds and loads libpmix. It may never return from a file system
// that does not answer.
var loadSlot = make(chan struct{}, 1)

// load is findLibrary with loadTimeout and a context. A load that does not return keeps its thread,
// and later ones wait for it.
func load(ctx context.Context, name string) (*pmixc.Library, error) {
	limited, cancel := withTimeout(ctx, loadTimeout)
	defer cancel()
	type result struct {
		lib *pmixc.Library
		err error
	}
	done := make(chan result, 1)
	select {
	case loadSlot <- struct{}{}:
		go func() {
			lib, err := findLibrary(name)
			<-loadSlot
			done <- result{lib, err}
		}()
	case <-limited.Done():
		return nil, fmt.Errorf("%s: an earlier load has not returned: %w", name, context.Cause(limited))
	}
	select {
	case r := <-done:
		return r.lib, r.err
	case <-limited.Done():
		return nil, fmt.Errorf("%s was not loaded: %w; its file system may not answer", name, context.Cause(limited))
	}
}

// findLibrary loads libpmix from the first directory that has it. It refuses a library that is too
// old, and a file that another user can change.
func findLibrary(name string) (*pmixc.Library, error) {
	if err := trustedfile.CheckLibrary(name); err != nil {
		return nil, err
	}
	var errs []error
	for _, path := range candidatePaths(name, os.Getenv) {
		l, err := pmixc.Load(path)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if v, ok := l.Version(); !ok || pmixc.OldestVersion.After(v) {
			return nil, fmt.Errorf("%w: %s is %q, too old: ferry needs %v", framework.ErrUnsupported, path, l.VersionText(), pmixc.OldestVersion)
		}
		return l, nil
	}
	err := errors.Join(errs...)
	if others := otherVersions(name); len(others) > 0 {
		return nil, fmt.Errorf("%s; there is %s, with another interface", oneLine(err), strings.Join(others, ", "))
	}
	return nil, errors.New(oneLine(err))
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// candidatePaths lists the paths of a library. A file is itself. A name is searched in PMIx's own
// variables, by the dynamic linker, and in libraryDirs. Paths that do not exist are omitted, except
// that of the dynamic linker.
func candidatePaths(name string, getenv func(string) string) []string {
	if strings.Contains(name, "/") {
		return []string{name}
	}
	var list []string
	add := func(pattern string) {
		found, _ := filepath.Glob(filepath.Join(pattern, name))
		list = append(list, found...)
	}
	if dir := getenv("PMIX_LIBDIR"); dir != "" {
		add(dir)
	}
	if prefix := getenv("PMIX_PREFIX"); prefix != "" {
		add(filepath.Join(prefix, "lib"))
		add(filepath.Join(prefix, "lib64"))
		add(filepath.Join(prefix, "lib", "*-linux-gnu"))
	}
	list = append(list, name)
	for _, dir := range libraryDirs {
		add(dir)
	}
	return list
}

// otherVersions lists libraries whose names differ from name only after ".so".
func otherVersions(name string) []string {
	stem, _, ok := strings.Cut(filepath.Base(name), ".so")
	if !ok {
		return nil
	}
	var list []string
	for _, dir := range libraryDirs {
		found, _ := filepath.Glob(filepath.Join(dir, stem+".so.[0-9]"))
		list = append(list, slices.DeleteFunc(found, func(f string) bool { return filepath.Base(f) == filepath.Base(name) })...)
	}
	return list
}
